"""Calls the callbacks' hooks of a worker's environments and episodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from reef.batch import Rollout
from reef.callbacks.hooks import Hooks, number_of
from reef.callbacks.sample_batch import SampleBatch
from reef.envs.vector import AgentsStep, EpisodeListener
from reef.errors import CallbackError
from reef.types import AgentId, Array, PolicyId

if TYPE_CHECKING:
    from reef.rollout.worker import RolloutWorker


class RunningEpisode:
    """An episode in progress, as hooks see it: observations, actions and rewards are those of the environment.

    What hooks put into `custom_metrics` and `hist_data` is reported when it ends; `user_data` and `media` are not.
    """

    def __init__(self, episode_id: int, env_id: int, worker: Any, policies: Mapping[AgentId, PolicyId]) -> None:
        """`policies`: by agent, the id of the policy it acts with."""
        self.episode_id, self.env_id, self.worker = episode_id, env_id, worker
        self.user_data: dict[str, Any] = {}
        self.custom_metrics: dict[str, Any] = {}
        self.hist_data: dict[str, Any] = {}
        self.media: dict[str, Any] = {}
        self.options: dict[str, Any] | None = None  # of the reset, set by on_episode_created
        self.length = 0
        self.agent_rewards: defaultdict[tuple[AgentId, PolicyId], float] = defaultdict(float)
        self._policies = policies
        self._last: dict[str, dict[AgentId, Any]] = {"obs": {}, "action": {}, "reward": {}, "info": {}}

    @property
    def total_reward(self) -> float:
        """The rewards of all agents so far."""
        return sum(self.agent_rewards.values())

    def get_agents(self) -> list[AgentId]:
        """The agents that had an observation in this episode."""
        return list(self._last["obs"])

    def policy_for(self, agent_id: AgentId) -> PolicyId:
        """The id of the policy that an agent acts with."""
        return self._policies[agent_id]

    def last_observation_for(self, agent_id: AgentId | None = None) -> Any:
        """The newest observation of an agent, by default of the first one; None before there is any."""
        return self._newest("obs", agent_id)

    def last_action_for(self, agent_id: AgentId | None = None) -> Any:
        """The newest action of an agent, as the environment gets it."""
        return self._newest("action", agent_id)

    def last_reward_for(self, agent_id: AgentId | None = None) -> Any:
        """The newest reward of an agent."""
        return self._newest("reward", agent_id)

    def last_info_for(self, agent_id: AgentId | None = None) -> Any:
        """The newest info of an agent."""
        return self._newest("info", agent_id)

    def _newest(self, what: str, agent_id: AgentId | None) -> Any:
        return self._last[what].get(next(iter(self._policies)) if agent_id is None else agent_id)

    def take(self, **newest: Mapping[AgentId, Any]) -> None:
        """Take in what a reset or a step gave each agent."""
        for what, by_agent in newest.items():
            self._last[what].update(by_agent)
        for agent, reward in newest.get("reward", {}).items():
            self.agent_rewards[agent, self._policies[agent]] += float(reward)

    def metrics(self) -> dict[str, float]:
        """`custom_metrics` as plain numbers; CallbackError for another value."""
        return {str(key): number_of("episode.custom_metrics", key, value) for key, value in self.custom_metrics.items()}

    def histograms(self) -> dict[str, list[float]]:
        """`hist_data` as lists of plain numbers; CallbackError for another value."""
        found = {}
        for key, values in self.hist_data.items():
            if not isinstance(values, Sequence | np.ndarray) or isinstance(values, str):
                raise CallbackError(f"callbacks: episode.hist_data[{key!r}]={values!r}: expected a list of numbers.")
            found[str(key)] = [number_of("episode.hist_data", key, value) for value in values]
        return found


class BaseEnv:
    """The environments of a worker, as hooks get them."""

    def __init__(self, envs: Sequence[Any] = ()) -> None:
        self.envs = dict(enumerate(envs))  # by index

    def get_sub_environments(self) -> list[Any]:
        """The environments, by index."""
        return [self.envs[index] for index in sorted(self.envs)]

    get_unwrapped = get_sub_environments  # as older code calls it


class EpisodeHooks(EpisodeListener):
    """The listener that calls hooks, with a `RunningEpisode` for each environment."""

    def __init__(self, hooks: Hooks, worker: RolloutWorker) -> None:
        self._hooks, self._worker = hooks, worker
        self.base_env = BaseEnv()
        self.episodes: dict[int, RunningEpisode] = {}  # by environment
        self.ended: dict[int, RunningEpisode] = {}  # by environment: until the worker has reported them
        self.t = -1  # the step of the sample that is under way; -1 before the first one
        self._first: dict[int, int] = {}  # by environment: the step of the sample at which its episode goes on
        self._parts: list[tuple[RunningEpisode, int, int]] = []  # episodes that left, with the steps [first, end)

    def begin_sample(self) -> None:
        """Another sample begins."""
        self.t, self._parts = -1, []
        self._first = dict.fromkeys(self.episodes, 0)

    def made(self, env: int, environment: Any, context: Any) -> None:
        """Call on_sub_environment_created."""
        self.base_env.envs[env] = environment
        arguments = {"sub_environment": environment, "env_context": context, "env_index": env}
        self._hooks.call("on_sub_environment_created", worker=self._worker, **arguments)

    def begins(self, env: int) -> dict[str, Any]:
        """Call on_episode_created for a new episode; returns its options for `reset`."""
        self._leave(env, self.t)  # of one that broke, whose last step counts for nothing
        self._first[env] = self.t + 1
        assert self._worker.env is not None
        policies = self._worker.env.roles(env)
        number = self._worker.env.seeds.episode_id(env, ahead=1)
        if env in self.episodes:  # a soft horizon ends episodes that its environment does not begin
            number = max(number, self.episodes[env].episode_id + 1)
        episode = self.episodes[env] = RunningEpisode(number, env, self._worker, policies)
        self._call("on_episode_created", env)
        return {} if episode.options is None else {"options": episode.options}

    def began(self, env: int, obs: Mapping[AgentId, Any], infos: Mapping[AgentId, Any]) -> None:
        """Call on_episode_start."""
        self.episodes[env].take(obs=obs, info=infos)
        self._call("on_episode_start", env)

    def stepped(self, env: int, actions: Mapping[AgentId, Any], step: AgentsStep, *, ended: bool) -> None:
        """Call on_episode_step, and on_episode_end after the last step."""
        episode = self.episodes[env]
        episode.length += 1
        episode.take(action=actions, obs=step.obs, reward=step.rewards, info=step.infos)
        self._call("on_episode_step", env)
        if ended:
            self._call("on_episode_end", env)
            self.ended[env] = episode
            self._leave(env, self.t + 1)

    def _leave(self, env: int, end: int) -> None:
        if (first := self._first.pop(env, end)) < end:
            self._parts.append((self.episodes[env], first, end))

    def postprocess(self, rollouts: Mapping[PolicyId, Rollout]) -> None:
        """Call on_postprocess_trajectory for each agent and part of an episode in the `rollouts` of a sample."""
        if "on_postprocess_trajectory" not in self._hooks:
            return
        for env in list(self._first):
            self._leave(env, self.t + 1)
        for episode, first, end in self._parts:
            batches = [
                (agent, policy_id, SampleBatch.of(rollouts[policy_id], partial(_part, rows, int(column))))
                for policy_id, runner in self._worker.runners.items()
                for agent, column in zip(
                    runner.columns.agents, np.flatnonzero(runner.columns.envs == episode.env_id), strict=True
                )
                for rows in runner.fragment.parts(int(column), first, end)
            ]
            policies = self._worker.policy_map
            originals = {agent: (None, type(policies[name]), batch.copy()) for agent, name, batch in batches}
            for agent, policy_id, batch in batches:
                self._hooks.call(
                    "on_postprocess_trajectory",
                    worker=self._worker,
                    episode=episode,
                    agent_id=agent,
                    policy_id=policy_id,
                    policies=policies,
                    postprocessed_batch=batch,
                    original_batches=originals,
                )

    def report(self, env: int) -> dict[str, Any]:
        """What hooks measured in the episode that has ended in an environment, as fields of `Episode`."""
        episode = self.ended.pop(env)
        return {"custom_metrics": episode.metrics(), "hist_data": episode.histograms()}

    def _call(self, hook: str, env: int) -> None:
        arguments = {"policies": self._worker.policy_map, "episode": self.episodes[env], "env_index": env}
        self._hooks.call(hook, worker=self._worker, base_env=self.base_env, **arguments)


def _part(rows: slice, column: int, array: Array) -> Array:
    return array[rows, column]
