"""The rollout worker: the only loop around `env.step`."""

from __future__ import annotations

import logging
import math
import os
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch

from reef.batch import Rollout, Sample
from reef.callbacks.default import OF_EPISODES, OF_WORKER
from reef.config import AlgorithmConfig
from reef.envs.by_policy import EnvStep, PolicyEnvs
from reef.envs.context import env_context
from reef.envs.make import make_envs
from reef.errors import WorkerTimeoutError
from reef.nn.recurrent import with_sampled_rewards
from reef.replay.step_values import with_step_values
from reef.rollout.episode_hooks import BaseEnv, EpisodeHooks
from reef.rollout.episode_recorder import episode_recorder
from reef.rollout.episodes import Collection, EpisodeTracker
from reef.rollout.policies.batch_runner import BatchRunner, until_full
from reef.rollout.policies.held import WorkerPolicies
from reef.rollout.videos.drawing import DRAWN, drawing_of
from reef.types import Array, PolicyId, State

T = TypeVar("T")
LONG = 10_000  # steps after which a whole episode is logged as long, once

log = logging.getLogger(__name__)


class RolloutWorker(WorkerPolicies):
    """Steps `num_envs_per_worker` environments, with a copy of each policy that acts in them.

    Worker 0 is the local one, in the driver's process; without environments (`with_env=False`) it only holds the
    policies and filters with which the other workers are synchronised.
    """

    def __init__(
        self, config: AlgorithmConfig, worker_index: int = 0, *, with_env: bool = True, recreated: bool = False
    ) -> None:
        """Raises EnvironmentError or ConfigError if the environment or the network cannot be made."""
        # With the run's seed, it would repeat the episodes of the worker that it replaces.
        if recreated:
            config = config.copy().debugging(seed=None).freeze()
        if config.log_level is not None:  # every process has a worker
            logging.getLogger("reef").setLevel(config.log_level)
        super().__init__(config, worker_index)
        self.hooks = config.hooks(*OF_WORKER, worker=self)
        # None: no hook of episodes is overridden
        self.episode_hooks = (
            EpisodeHooks(self.hooks, self) if with_env and any(name in self.hooks for name in OF_EPISODES) else None
        )
        count = config.num_envs_per_worker if with_env else 1
        self.recorder = episode_recorder(config, self, self.episode_hooks) if with_env else None
        listener = self.recorder or self.episode_hooks
        is_drawn = with_env and (config.record_env or config.render_env)
        self.drawing = drawing_of(self, config, listener) if is_drawn else None
        envs = make_envs(config, worker_index, count, recreated=recreated, listener=self.drawing or listener)
        self.env: PolicyEnvs | None = envs if with_env else None
        if not with_env:
            envs.close()
        self._envs = envs
        # Evaluation in the driver's process has no other time limit; the driver ends evaluation workers.
        self.time_limit_s = config.sample_timeout_s if config.in_evaluation and worker_index == 0 else math.inf
        self.fragment_length = config.fragment_length(worker_index)
        self.episodes = EpisodeTracker(envs.num_envs)
        self._collection = Collection(math.inf)
        self._begun_and_ended = 0
        self._warned_of_long = False
        self._fragment_index = np.zeros(envs.num_envs, np.int64)  # [E] fragments since each episode started
        self.use_columns()
        self._apart = [runner for runner in self.runners.values() if isinstance(runner, BatchRunner)]
        if with_env:
            context = env_context(config, worker_index, recreated=recreated)
            base_env = self.episode_hooks.base_env if self.episode_hooks else BaseEnv(envs.envs)
            self.hooks.call("on_environment_created", worker=self, env=base_env, env_context=context)

    def sample(self, steps: int | None = None, reset_episodes: bool = False, episodes: int | None = None) -> Sample:
        """One fragment: exactly `steps` per column (default `fragment_length`), or at least as many in whole episodes.

        With `reset_episodes` new episodes start with it; otherwise the running ones go on. With
        `batch_mode="complete_episodes"`, or a number of `episodes`, every episode starts and ends inside the sample,
        which is then longer; columns that finish early have masked steps.

        Raises EnvironmentError for invalid values, WorkerTimeoutError after the time limit.
        """
        if self._posted:
            self.set_acting_weights(*self._posted.pop())
        if self.env is None:
            raise RuntimeError(f"worker {self.worker_index} has no environment to sample from")
        if reset_episodes:
            self.reset_episodes()
        if self.episode_hooks is not None:
            self.episode_hooks.begin_sample()
        whole = episodes is not None or self.config.batch_mode == "complete_episodes"
        self._begun_and_ended += 1
        started = time.perf_counter()
        prepared_before = self._actions_prepared_s
        collection = self._collection = Collection(started + self.time_limit_s)
        name = self.env.name
        with torch.inference_mode():
            try:
                count = self._collect(steps or self.fragment_length, whole, episodes)
            except Exception:
                self._check()  # the error of a policy or an environment about a NaN does not name its source
                raise
            self._check()
            rollouts = {
                pid: runner.fragment.rollout(count, self.policy_version) for pid, runner in self.runners.items()
            }
        for policy_id, rollout in rollouts.items():
            self.runners[policy_id].check_finals(rollout, name)
        if self.episode_hooks is not None or "on_sample_end" in self.hooks:
            rollouts = self._for_hooks(rollouts)
        if self.config.workers_estimate_values:
            rollouts = {
                pid: with_step_values(rollout, self.policy_map[pid]) if self.config.may_train(pid) else rollout
                for pid, rollout in rollouts.items()
            }
        indices = {pid: self._fragment_index[runner.columns.envs] for pid, runner in self.runners.items()}
        self._fragment_index += 1
        self._begun_and_ended += 1
        sample = Sample(
            rollouts,
            collection.episodes,
            collection.env_steps,
            self._progress(rollouts, whole, count),
            worker_index=self.worker_index,
            timers={"sample": time.perf_counter() - started, **self._timers(prepared_before)},
            fragment_index=indices,
            videos=self.drawing.take_videos() if self.drawing and not self.config.in_evaluation else [],
        )
        if "on_sample_end" in self.hooks:
            self.hooks.call("on_sample_end", worker=self, samples=sample)
        return sample

    @property
    def _actions_prepared_s(self) -> float:
        """Seconds so far in which actions were stretched and clipped."""
        return sum(runner.columns.action_transform.seconds for runner in self.runners.values())

    def _timers(self, actions_prepared_before: float) -> dict[str, float]:
        """Where the time of the sample went, in seconds; of `sampler_perf` in results."""
        collection, actions = self._collection, self._actions_prepared_s - actions_prepared_before
        drawn = self.drawing.take_seconds() if self.drawing else 0.0
        return {
            "inference": collection.inference_s,
            "env_wait": collection.env_wait_s - actions - drawn,
            "raw_obs_processing": collection.recording_s,
            "action_processing": actions,
            "env_render": drawn,
        }

    def _progress(self, rollouts: dict[PolicyId, Rollout], whole: bool, count: int) -> int:
        """Steps towards a train batch, see `Sample`."""
        assert self.env is not None
        if self.config.count_steps_by == "agent_steps":
            return sum(map(len, rollouts.values()))
        return self._collection.env_steps if whole else count * self.env.num_envs

    def _for_hooks(self, rollouts: dict[PolicyId, Rollout]) -> dict[PolicyId, Rollout]:
        """The rollouts after on_postprocess_trajectory; their last observation begins the next fragment unchanged."""
        own = {pid: replace(rollout, next_obs=rollout.next_obs.copy()) for pid, rollout in rollouts.items()}
        rollouts = {pid: with_sampled_rewards(rollout) for pid, rollout in own.items()}
        if self.episode_hooks is not None:
            self.episode_hooks.postprocess(rollouts)
        return rollouts

    def sample_episodes(self, count: int) -> Sample:
        """Exactly `count` new episodes, a fixed share per environment: long ones weigh as much as short ones."""
        return self.sample(episodes=count)

    def _collect(self, steps: int, whole: bool, episodes: int | None) -> int:
        """Fill the fragments, in `whole` episodes if so; returns the number of steps of each column."""
        if not whole:
            return self._fixed_length(steps)
        if episodes is None:
            return self._whole_episodes(steps, min_steps=steps)
        share, more = divmod(episodes, self.episodes.lengths.size)
        return self._whole_episodes(steps, quota=share + (np.arange(self.episodes.lengths.size) < more))

    @property
    def progress(self) -> tuple[int, float]:
        """Samples started and finished so far, and a value that changes with every step; callable from any thread."""
        return self._begun_and_ended, self._collection.env_wait_s

    def _check(self) -> None:
        """Raise EnvironmentError for the first invalid value in the fragments."""
        assert self.env is not None
        for runner in self.runners.values():
            runner.check(self.env.name)

    def _fixed_length(self, steps: int) -> int:
        if any(runner.obs is None for runner in self.runners.values()):
            self._begin(steps)
        else:
            for runner in self.runners.values():
                runner.begin(steps)
        for t in until_full(self._apart, steps) if self._apart else range(steps):
            self._step(t)
        for runner in self.runners.values():
            runner.go_on()
        return steps

    def _whole_episodes(self, room: int, *, min_steps: int = 0, quota: Array | None = None) -> int:
        """Start episodes; step until every environment has ended one (or its `quota` [E]) and there are enough steps.

        Returns the number of steps of each column.
        """
        self._begin(room)
        count = self.episodes.lengths.size
        active = np.ones(count, np.bool_) if quota is None else quota > 0
        ended = np.zeros(count, np.int64)
        first = np.zeros(count, np.int64)  # step of the running episode
        t = 0
        while active.any():
            if any(runner.fragment.is_full(t) for runner in self.runners.values()):
                self._check()  # an episode that a NaN keeps from ending would run forever
                self._warn_of_long_episode(int(self.episodes.lengths[active].max()))
                for runner in self.runners.values():
                    runner.fragment.grow()
            step = self._step(t, active)
            t += 1
            if step.ended is None:
                continue
            done = active & step.ended
            if step.live is not None:
                self._drop_broken(first, t, done & ~step.live)
                done &= step.live
            first[step.ended] = t
            if quota is not None:
                ended += done
                active &= ended < quota
            elif self._collection.env_steps >= min_steps * count:
                active &= ~done
        return t

    def _warn_of_long_episode(self, steps: int) -> None:
        assert self.env is not None
        if steps >= LONG and not self._warned_of_long:
            self._warned_of_long = True
            log.warning(
                "%s: after %d steps an episode has not ended, and all of it is kept until it does (batch_mode="
                "'complete_episodes', or an evaluation). Where it never will, set horizon to cut episodes off.",
                self.env.name, steps,
            )  # fmt: skip

    def _drop_broken(self, first: Array, steps: int, failed: Array) -> None:
        """Mask the steps since `first` [E] of the episodes that broke in the last of `steps`."""
        for env in np.flatnonzero(failed):
            for runner in self.runners.values():
                for column in np.flatnonzero(runner.columns.envs == env).tolist():
                    for part in runner.fragment.parts(column, int(first[env]), steps):
                        self._collection.env_steps -= int(np.count_nonzero(runner.fragment.mask[part, column]))
                        runner.fragment.mask[part, column] = False

    def _begin(self, steps: int) -> None:
        """Start episodes in all environments, with `steps` allocated steps."""
        assert self.env is not None
        self.episodes.forget_all()
        self._fragment_index[:] = 0
        started = time.perf_counter()
        first = self.env.reset()
        self._collection.env_wait_s += time.perf_counter() - started
        for policy_id, runner in self.runners.items():
            runner.begin(steps, first[policy_id])

    def _step(self, t: int, active: Array | None = None) -> EnvStep:
        """Act, step every environment once, record step `t`; it is valid where `active` [E] is True, or everywhere."""
        assert self.env is not None
        collection = self._collection
        started = time.perf_counter()
        if started > collection.deadline:
            raise WorkerTimeoutError(f"after {self.time_limit_s:g} s there were {t} steps of each environment")
        actions = {policy_id: runner.act(t, self.timestep) for policy_id, runner in self.runners.items()}
        acted = time.perf_counter()
        if self.episode_hooks is not None:
            self.episode_hooks.t = t
        step = self.env.step(actions)
        collection.inference_s += acted - started
        stepped = time.perf_counter()
        collection.env_wait_s += stepped - acted
        counted = active if step.live is None else step.live if active is None else active & step.live
        collection.env_steps += self.env.num_envs if counted is None else int(np.count_nonzero(counted))
        self.episodes.lengths += 1 if counted is None else counted
        for policy_id, runner in self.runners.items():
            result = step.results[policy_id]
            valid = runner.record(t, result, active)
            self.episodes.add_rewards(policy_id, result.raw_rewards, valid, result.live)
        collection.recording_s += time.perf_counter() - stepped
        if step.ended is not None:
            for env in step.ended.nonzero()[0].tolist():
                if counted is None or counted[env]:
                    episode = self.episodes.finish(env)
                    if self.episode_hooks is not None:
                        episode = replace(episode, **self.episode_hooks.report(env))
                    collection.episodes.append(episode)
                elif step.live is not None and not step.live[env]:
                    self.episodes.forget(env)
        return step

    def foreach_env(self, fn: Callable[[Any], T]) -> list[T]:
        """Call `fn` with every sub-environment."""
        return [fn(env) for env in self.env.envs] if self.env is not None else []

    def apply(self, fn: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Call `fn(worker, *args, **kwargs)` in this worker's process."""
        return fn(self, *args, **kwargs)

    def collect(self, fn: Callable[[RolloutWorker], T]) -> T:
        """As `apply`, for what samples: an error is a failure of this worker."""
        return fn(self)

    def ping(self) -> str:
        """Answer a health probe: "host:pid"."""
        return f"{socket.gethostname()}:{os.getpid()}"

    def state(self) -> State:
        """Everything except the weights: random generators, running episodes, filters, exploration."""
        return {
            "timestep": self.timestep,
            "policy_version": self.policy_version,
            "filters": {key: {} for key in self.runners} | {key: own.state() for key, own in self.filters.items()},
            "runners": {policy_id: runner.state() for policy_id, runner in self.runners.items()},
            "episodes": self.episodes.state(),
            "env": self.env.state() if self.env is not None else None,
            "fragment_index": self._fragment_index.copy(),
        }

    def set_state(self, state: State) -> None:
        """Restore what `state` returned; with another number of environments, episodes go on in those that exist."""
        self.timestep, self.policy_version = state["timestep"], state["policy_version"]
        self.set_filters(state["filters"])
        for policy_id, stored in state["runners"].items():
            self.runners[policy_id].set_state(stored)
        if self.env is None or state["env"] is None:
            return
        self.episodes.set_state(state["episodes"])
        first, resumed = self.env.set_state(state["env"])
        for policy_id, runner in self.runners.items():
            runner.resume(state["runners"][policy_id], first[policy_id], resumed[runner.columns.envs])
        if self.drawing is not None and resumed[DRAWN] and self.episodes.lengths[DRAWN]:
            self.drawing.goes_on()
        for env, goes_on in enumerate(resumed):
            self._fragment_index[env] = state["fragment_index"][env] if goes_on else 0
            if not goes_on:
                self.episodes.forget(env)  # the environment could not resume and started an episode

    def stop(self) -> None:
        """Close the environments, and what is written of their episodes."""
        if self.env is not None:
            self.env.close()
        if self.recorder is not None:
            self.recorder.close()
        if self.drawing is not None:
            self.drawing.close()
