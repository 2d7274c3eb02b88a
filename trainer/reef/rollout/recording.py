"""Environments that record the episode which is played in them, and the worker that plays it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import numpy as np

from reef.config import AlgorithmConfig
from reef.envs.atari.lives import lives_of
from reef.envs.atari.names import is_atari
from reef.envs.check import check_spaces
from reef.envs.failures import env_name, failure
from reef.envs.multi_agent import ALL, RESET, STEP, MultiAgentEnv, agent_spaces, is_multi_agent
from reef.offline.episode_files import PlayedEpisode
from reef.rollout.episode_recorder import keep_likelihood
from reef.rollout.videos.drawing import VideoRecorder
from reef.rollout.worker import RolloutWorker
from reef.spaces import Layout
from reef.types import AgentId


class RecordedEnv:
    """An environment of one agent; `episode` is the one that is played in it, or was played last."""

    results: Mapping[str, str] = {}
    # who acts in it; None, while not known, or for several agents
    worker: RolloutWorker | None = None

    def __init__(self, env: Any, config: AlgorithmConfig, keep: Sequence[str] = ()) -> None:
        """`keep`: the first of `reef.offline.episode_files.STEP_KEYS`, which are recorded of each step."""
        self._env, self._name, self._keep = env, env_name(config.env), keep
        self._seed, self._horizon = config.seed, config.horizon
        self._read_spaces(config)
        self.metadata, self.render_mode = getattr(env, "metadata", {}), getattr(env, "render_mode", None)
        self.lives_env = lives_of(env)  # or a lost life would be no end for the policy, as it is in training
        self.begin(0, math.inf)

    def _read_spaces(self, config: AlgorithmConfig) -> None:
        self.observation_space, self.action_space = check_spaces(self._env, self._name, config)
        self._layout = Layout.of(self.observation_space)

    @property
    def seed(self) -> int | None:
        """The seed that the episode is begun with; None: the environment's generator goes on from the one before."""
        return self._seed if self.episode.number == 1 else None

    def begin(self, number: int, limit: float) -> None:
        """Have the next `reset` begin this episode, which is cut after `limit` steps."""
        self.episode, self._limit = PlayedEpisode(number), limit

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin the episode; the reset with which a worker goes on from its end is left out."""
        if not self.episode.length:
            with self._naming("reset"):
                obs, _ = self._env.reset(seed=self.seed)
                self._check(obs)
            self._obs = self._first = deepcopy(obs)
        return self._first, {}

    def step(self, action: Any) -> Any:
        """Step the environment and record that; the last step within the limit is truncated."""
        with self._naming("step"):
            obs, reward, terminated, truncated, info = self._env.step(action)
            self._check(obs)
            if not math.isfinite(reward := float(reward)):
                raise ValueError(f"reward is {reward}, expected a finite number")
            terminated, truncated = bool(terminated), bool(truncated)
        cut = self._record((action, obs, reward, terminated, truncated, info), reward, terminated or truncated)
        return obs, reward, terminated, truncated or cut, info

    def render(self) -> Any:
        """What the environment draws."""
        return self._env.render()

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    def _check(self, obs: Any) -> None:
        values = self._layout.flatten(obs)
        if values.shape != self._layout.shape:
            raise ValueError(f"obs has the shape {values.shape}, expected {self._layout.shape}")
        if not np.isfinite(values).all():
            index = np.argwhere(~np.isfinite(values))[0]
            raise ValueError(f"obs has {values[tuple(index)]} at index {index.tolist()}, expected finite numbers")

    def _record(self, step: tuple[Any, ...], reward: float, ended: bool) -> bool:
        """Take in a step; returns whether it is the last one within the limit."""
        episode = self.episode
        episode.reward += reward
        episode.length += 1
        episode.complete = ended or episode.length == self._horizon
        if self._keep:
            self._obs = episode.keep(self._keep, self._obs, *step)
            if self.worker is not None:
                keep_likelihood(episode, self.worker, 0)
        return episode.length >= self._limit

    @contextmanager
    def _naming(self, call: str) -> Iterator[None]:
        """What the environment raises, or returns that cannot be used, becomes a message that says where."""
        try:
            yield
        except Exception as error:
            where = f"after {self.episode.length} steps of episode {self.episode.number}"
            raise failure(self._name, call, where, error, expected=self.results.get(call, "")) from error


class RecordedAgents(RecordedEnv, MultiAgentEnv):
    """An environment of several agents."""

    results: Mapping[str, str] = {"reset": RESET, "step": STEP}

    def _read_spaces(self, config: AlgorithmConfig) -> None:
        spaces = agent_spaces(self._env, self._name)
        self.agents_take_turns = getattr(self._env, "agents_take_turns", False)
        self.possible_agents = list(spaces)
        self.observation_spaces = {agent: observed for agent, (observed, _) in spaces.items()}
        self.action_spaces = {agent: acted for agent, (_, acted) in spaces.items()}

    def step(self, actions: dict[AgentId, Any]) -> Any:
        """As that of one agent, by agent; the episode is over for all of them once the limit is reached."""
        with self._naming("step"):
            obs, rewards, terminated, truncated, infos = self._env.step(actions)
            gone = {agent for ended in (terminated, truncated) for agent, flag in ended.items() if flag}
            over = ALL in gone or gone >= actions.keys() | obs.keys()
            total = sum(map(float, rewards.values()))
        cut = self._record((actions, obs, rewards, terminated, truncated, infos), total, over)
        return obs, rewards, terminated, {**truncated, ALL: True} if cut else truncated, infos

    def _check(self, obs: Any) -> None:
        """The worker checks those of several agents."""


def recording_worker(
    config: AlgorithmConfig, trained: RolloutWorker, env: Any, keep: Sequence[str] = ()
) -> tuple[RolloutWorker, RecordedEnv]:
    """A worker that plays whole episodes, however long, in `env` alone, by the policies and filters of `trained`.

    `config`: of evaluation. `keep`: as of the `RecordedEnv`, which is returned too.
    """
    recorded = (RecordedAgents if is_multi_agent(env) else RecordedEnv)(env, config, keep)

    def create(context: object) -> RecordedEnv:
        return recorded

    create.__name__ = env_name(config.env)
    changed = {
        "env": create,
        "is_atari": is_atari(config, env),
        # frames are prepared in the recorded environment
        "preprocessor_pref": None,
        "num_envs_per_worker": 1,
        "remote_worker_envs": False,
        "restart_failed_sub_environments": False,
        # or the check of the environment would be recorded
        "disable_env_checking": True,
        # it is in the recorded environment
        "observation_fn": None,
        "sample_timeout_s": math.inf,
    }
    worker = RolloutWorker(config.copy().assign(changed).freeze())
    if not isinstance(recorded, RecordedAgents):
        recorded.worker = worker
    if isinstance(worker.drawing, VideoRecorder):
        about = worker.drawing.describe
        worker.drawing.wanted = lambda number: True
        worker.drawing.describe = lambda: {**about(), "seed": recorded.seed}
    worker.set_weights(trained.get_weights(), trained.policy_version, trained.timestep)
    worker.set_filters({policy_id: observed.state() for policy_id, observed in trained.filters.items()})
    return worker, recorded
