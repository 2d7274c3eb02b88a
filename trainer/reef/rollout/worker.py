"""The rollout worker: the only loop around `env.step`."""

from __future__ import annotations

import logging
import math
import os
import socket
import time
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch

from reef.batch import Episode, Sample
from reef.config import AlgorithmConfig
from reef.envs import VectorEnv, make_vector_env
from reef.envs.seeding import EVALUATION
from reef.envs.vector import StepResult, check_choices, check_finite
from reef.errors import WorkerTimeoutError
from reef.math.running import RunningStat
from reef.nn.make import make_policy
from reef.rollout.episodes import EpisodeTracker
from reef.rollout.exploration import make_exploration
from reef.rollout.filters import make_filter
from reef.rollout.fragment import Fragment
from reef.trees import require_like
from reef.types import DEFAULT_POLICY, Array, PolicyId, State, Weights

T = TypeVar("T")
LONG = 10_000  # steps; a whole episode that is longer is told of, once

log = logging.getLogger(__name__)


class RolloutWorker:
    """Steps `num_envs_per_worker` environments with a copy of the policy.

    Worker 0 is the local one, in the driver's process; without environments (`with_env=False`) it only holds the
    policy and the filters that the others are synchronised from.
    """

    def __init__(
        self, config: AlgorithmConfig, worker_index: int = 0, *, with_env: bool = True, recreated: bool = False
    ) -> None:
        """Raises EnvironmentError or ConfigError when the environment or the network cannot be made."""
        if recreated:  # with the run's seed it would play the episodes of the worker it replaces once more
            config = config.copy().debugging(seed=None).freeze()
        if config.log_level is not None:  # every process has a worker
            logging.getLogger("reef").setLevel(config.log_level)
        self.config = config
        self.worker_index = worker_index
        self.env: VectorEnv | None = None
        env = make_vector_env(config, worker_index, config.num_envs_per_worker if with_env else 1, recreated=recreated)
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.policy = make_policy(config, self.observation_space, self.action_space)
        if config.torch_compile_worker:
            self.policy.compile_acting(
                backend=config.torch_compile_worker_dynamo_backend, mode=config.torch_compile_worker_dynamo_mode
            )
        self.policy_map = {DEFAULT_POLICY: self.policy}
        self.action_transform = env.action_transform
        self.filter = make_filter(config.observation_filter, self.policy.observation_layout)
        self.filters = {DEFAULT_POLICY: self.filter}
        self.update_filter = not config.in_evaluation
        self.exploration = make_exploration(config, self.policy.action_layout, worker_index)
        apart = (1, EVALUATION) if config.in_evaluation else (1,)  # 1: from the environments' generators
        self.generator = np.random.default_rng(None if config.seed is None else [config.seed, worker_index, *apart])
        # Evaluation in the driver's process has nobody else to end it; a worker of its own is ended by the driver.
        self.time_limit_s = config.sample_timeout_s if config.in_evaluation and worker_index == 0 else math.inf
        self._deadline = math.inf  # of the sample in progress
        self._inference_s = self._env_wait_s = 0.0  # spent in it on acting, and on the environments
        self._begun_and_ended = 0
        self.timestep = 0  # environment steps of the whole run, as of the last weights
        self.policy_version = 0
        self.fragment_length = config.fragment_length(worker_index)
        self.episodes = EpisodeTracker(env.num_envs)
        if with_env:
            self.env = env
        else:
            env.close()
        self._told_of_long = False
        self._obs: Array | None = None  # [B, *obs] filtered; None: episodes begin with the next sample
        self._series = np.zeros(env.num_envs, np.int64)  # [B] fragments in a row that each column has gone on for

    def sample(self, steps: int | None = None, anew: bool = False) -> Sample:
        """One fragment: exactly `steps` of each column, by default `fragment_length`; or as many in whole episodes.

        With `anew` episodes begin with it instead of going on.

        With `batch_mode="complete_episodes"` every episode begins and ends inside the sample, which is then longer;
        columns that are through wait as masked steps for the others.
        """
        steps = steps or self.fragment_length
        if anew:
            self.begin_anew()
        if self.config.batch_mode == "complete_episodes":
            return self._sample(steps, lambda fragment: self._whole_episodes(fragment, min_steps=steps))
        return self._sample(steps, self._fixed_length)

    @property
    def progress(self) -> tuple[int, float]:
        """Samples begun and ended so far, and what changes with every step; may be asked from any thread."""
        return self._begun_and_ended, self._env_wait_s

    def begin_anew(self) -> None:
        """Let the next sample begin new episodes."""
        self._obs = None

    def sample_episodes(self, count: int) -> Sample:
        """Exactly `count` new episodes, each column its share, so that long ones weigh no less than short ones."""
        share, more = divmod(count, self.episodes.lengths.size)
        quota = share + (np.arange(self.episodes.lengths.size) < more)
        return self._sample(self.fragment_length, lambda fragment: self._whole_episodes(fragment, quota=quota))

    def _sample(self, room: int, collect: Callable[[Fragment], tuple[int, list[Episode]]]) -> Sample:
        """Fill a fragment; EnvironmentError for values that cannot be used, WorkerTimeoutError after `time_limit_s`."""
        if self.env is None:
            raise RuntimeError(f"worker {self.worker_index} has no environment to sample from")
        self._begun_and_ended += 1
        started = time.perf_counter()
        self._deadline = started + self.time_limit_s
        self._inference_s = self._env_wait_s = 0.0
        fragment = Fragment(self.policy, room, self.env.num_envs)
        with torch.inference_mode():
            try:
                steps, episodes = collect(fragment)
            except Exception:
                self._check(fragment)  # what a policy or an environment says to a NaN does not name its source
                raise
            self._check(fragment)
            rollout = fragment.rollout(steps, self._extras(fragment, steps), self.policy_version)
        if fragment.finals:  # else the successors are the observations themselves
            self._check_observations("last observations", rollout.next_obs)
        sample_s = time.perf_counter() - started
        timers = {"sample": sample_s, "inference": self._inference_s, "env_wait": self._env_wait_s}
        whole, series = self._obs is None, self._series.copy()
        self._series += 1
        self._begun_and_ended += 1
        return Sample({DEFAULT_POLICY: rollout}, episodes, len(rollout), self.worker_index, timers, whole, series)

    def _check(self, fragment: Fragment) -> None:
        """Raise EnvironmentError for the first value in `fragment` that no network can use."""
        assert self.env is not None
        self._check_observations("observations", fragment.obs[: fragment.observed])
        check_finite("rewards", fragment.rewards[: max(fragment.observed - 1, 0)], self.env.name)

    def _check_observations(self, name: str, obs: Array) -> None:
        assert self.env is not None
        check_finite(name, obs, self.env.name)
        check_choices(name, obs, self.policy.observation_layout, self.env.name)

    def _fixed_length(self, fragment: Fragment) -> tuple[int, list[Episode]]:
        fragment.begin(self._begin() if self._obs is None else self._obs)
        episodes: list[Episode] = []
        for t in range(fragment.capacity):
            episodes += self._step(fragment, t)
        self._obs = fragment.obs[-1]
        return fragment.capacity, episodes

    def _whole_episodes(
        self, fragment: Fragment, *, min_steps: int = 0, quota: Array | None = None
    ) -> tuple[int, list[Episode]]:
        """Begin anew and go on until every column has ended its episode (or its `quota` [B]) and steps suffice."""
        fragment.begin(self._begin())
        self._obs = None
        assert self.env is not None
        columns = fragment.mask.shape[1]
        active = np.ones(columns, np.bool_) if quota is None else quota > 0
        ended = np.zeros(columns, np.int64)
        episodes: list[Episode] = []
        count = t = 0
        while active.any():
            if t == fragment.capacity:
                self._check(fragment)  # an episode that a NaN keeps from its end would go on for ever
                self._tell_of_long(int(self.episodes.lengths[active].max()))
                fragment.grow()
            fragment.mask[t] = active
            episodes += self._step(fragment, t)
            failed = active & ~fragment.mask[t] & fragment.truncated[t]
            if failed.any():
                count -= self._drop_broken(fragment, t, failed)
            count += int(np.count_nonzero(fragment.mask[t]))
            done = (fragment.terminated[t] | fragment.truncated[t]) & fragment.mask[t]
            if quota is not None:
                ended += done
                active &= ended < quota
            elif count >= min_steps * columns:
                active &= ~done
            t += 1
        return t, episodes

    def _tell_of_long(self, steps: int) -> None:
        assert self.env is not None
        if steps >= LONG and not self._told_of_long:
            self._told_of_long = True
            log.warning(
                "%s: after %d steps an episode has not ended, and all of it is kept until it does (batch_mode="
                "'complete_episodes', or an evaluation). Where it never will, set horizon to cut episodes off.",
                self.env.name, steps,
            )  # fmt: skip

    def _drop_broken(self, fragment: Fragment, t: int, failed: Array) -> int:
        """Mask the steps of the episodes that step `t` broke off; returns how many had counted."""
        before = np.count_nonzero(fragment.mask[:t])
        for column in np.flatnonzero(failed):
            ends = np.flatnonzero(fragment.terminated[:t, column] | fragment.truncated[:t, column])
            fragment.mask[ends[-1] + 1 if len(ends) else 0 : t, column] = False
        return int(before - np.count_nonzero(fragment.mask[:t]))

    def _begin(self) -> Array:
        assert self.env is not None
        self.episodes.forget(slice(None))
        self._series[:] = 0
        started = time.perf_counter()
        first = self.env.reset()
        self._env_wait_s += time.perf_counter() - started
        obs: Array = self.filter(first, update=self.update_filter)
        return obs

    def _step(self, fragment: Fragment, t: int) -> list[Episode]:
        """Act, step every column once, write step `t`; returns the episodes that ended."""
        assert self.env is not None
        started = time.perf_counter()
        if started > self._deadline:
            raise WorkerTimeoutError(f"after {self.time_limit_s:g} s there were {t} steps of each environment")
        explore = self.config.explore
        distribution = self.policy.act(fragment.obs[t], self.generator if explore else None)
        actions = self.exploration.get_exploration_action(distribution, self.timestep, explore, self.generator)
        fragment.actions[t] = actions
        if fragment.dist_inputs is not None:
            fragment.dist_inputs[t] = distribution.inputs
        acted = time.perf_counter()
        result = self.env.step(actions)
        stepped = time.perf_counter()
        self._inference_s += acted - started
        self._env_wait_s += stepped - acted
        fragment.write(t, result, self.filter(result.obs, update=self.update_filter))
        self.episodes.add(result.raw_rewards, fragment.mask[t])
        if not np.count_nonzero(result.terminated | result.truncated):
            return []
        for column, obs in result.final_obs.items():
            fragment.finals.append((t, column, self.filter(obs[None], update=False)[0]))
        return self._ended(result, fragment.mask[t])

    def _ended(self, result: StepResult, counted: Array) -> list[Episode]:
        """The episodes that ended with a step; one whose environment failed is forgotten."""
        done = result.terminated | result.truncated
        if result.live is not None:
            for failed in np.flatnonzero(done & ~result.live):
                self.episodes.forget(int(failed))
        return [self.episodes.finish(int(column)) for column in np.flatnonzero(done & counted)]

    def _extras(self, fragment: Fragment, steps: int) -> dict[str, Array]:
        """What the policy returned when it acted; log-likelihoods are computed for the whole fragment at once."""
        if fragment.dist_inputs is None:
            return {}
        inputs, actions = fragment.dist_inputs[:steps], fragment.actions[:steps]
        distribution = self.policy.dist_class(torch.from_numpy(inputs.reshape(-1, inputs.shape[-1])))
        logp = distribution.logp(torch.from_numpy(actions.reshape(-1, *actions.shape[2:])))
        return {"action_dist_inputs": inputs, "action_logp": logp.numpy().reshape(inputs.shape[:2])}

    def set_weights(self, weights: Weights, version: int = 0, timestep: int = 0) -> None:
        """Take over published weights; `timestep` drives exploration schedules."""
        for policy_id, vector in weights.items():
            self.policy_map[policy_id].flat.load(vector)
        self.policy_version, self.timestep = version, timestep

    def get_weights(self) -> Weights:
        """One flat vector per policy."""
        return {policy_id: policy.flat.numpy() for policy_id, policy in self.policy_map.items()}

    def filter_deltas(self) -> dict[PolicyId, RunningStat]:
        """What the filters saw since the last call."""
        return {policy_id: observed.delta() for policy_id, observed in self.filters.items()}

    def set_filters(self, filters: dict[PolicyId, State]) -> None:
        """Take over the observation statistics of another worker."""
        for policy_id, stored in filters.items():
            self.filters[policy_id].set_state(stored)

    def foreach_env(self, fn: Callable[[Any], T]) -> list[T]:
        """Call `fn` with every sub-environment."""
        return [fn(env) for env in self.env.envs] if self.env is not None else []

    def apply(self, fn: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Call `fn(worker, *args, **kwargs)` where this worker lives."""
        return fn(self, *args, **kwargs)

    def ping(self) -> str:
        """Answer a health probe: "host:pid"."""
        return f"{socket.gethostname()}:{os.getpid()}"

    def state(self) -> State:
        """Everything but the weights: random generators, episodes in progress, filters, exploration."""
        return {
            "generator": self.generator.bit_generator.state,
            "timestep": self.timestep,
            "policy_version": self.policy_version,
            "filters": {policy_id: f.state() for policy_id, f in self.filters.items()},
            "exploration": self.exploration.state(),
            "episodes": self.episodes.state(),
            "env": self.env.state() if self.env is not None else None,
            "obs": None if self._obs is None else self._obs.copy(),
            "series": self._series.copy(),
        }

    def set_state(self, state: State) -> None:
        """The reverse of `state`; episodes of another number of columns go on as far as the columns reach."""
        self.generator.bit_generator.state = state["generator"]
        self.timestep, self.policy_version = state["timestep"], state["policy_version"]
        self.set_filters(state["filters"])
        self.exploration.set_state(state["exploration"])
        self.begin_anew()
        if self.env is None or state["env"] is None:
            return
        self.episodes.set_state(state["episodes"])
        obs = self.filter(self.env.set_state(state["env"]), update=False)
        if state["obs"] is None:
            return
        require_like(state["obs"][:0], obs[:0], "obs")
        self._obs = obs.copy()
        self._series[:] = 0
        for column, resumed in enumerate(self.env.resumed):
            if resumed:
                self._obs[column] = state["obs"][column]  # as it was filtered then
                self._series[column] = state["series"][column]
            else:
                self.episodes.forget(column)  # the environment could not go on and began anew

    def stop(self) -> None:
        """Close the environments."""
        if self.env is not None:
            self.env.close()
