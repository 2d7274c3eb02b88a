"""Workers that read recorded episodes in processes of their own, so that learning does not wait for files."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from reef.batch import Rollout, Sample
from reef.config import AlgorithmConfig
from reef.rollout.worker import RolloutWorker
from reef.run.recorded.reading import Share, recorded_sources
from reef.types import State

COLUMNS = ("obs", "actions", "rewards", "next_obs", "terminated", "truncated", "mask")


class ReadingWorker(RolloutWorker):
    """Reads its share of `input_` again and again, and steps no environment."""

    def __init__(
        self, config: AlgorithmConfig, worker_index: int = 0, *, with_env: bool = True, recreated: bool = False
    ) -> None:
        """The worker with the index 0 only holds the policy, and sees that there are files for all others.

        Raises:
            ConfigError: there is no such file, or there are fewer than workers.
        """
        super().__init__(config, worker_index, with_env=False, recreated=recreated)
        ((self._policy_id, runner),) = self.runners.items()
        (self._source,) = recorded_sources(config, runner, share=Share(worker_index, config.num_rollout_workers))
        self._reading: Iterator[Rollout] = iter(())
        self._taken = 0  # rollouts of this pass

    def sample(self, steps: int | None = None, reset_episodes: bool = False, episodes: int | None = None) -> Sample:
        """The next episodes, one after the other [T, 1], with at least `steps` (default `rollout_fragment_length`)."""
        started, found, count = time.perf_counter(), list[Rollout](), 0
        self._begun_and_ended += 1
        while count < (steps or self.fragment_length):
            found.append(self._next())
            count += len(found[-1])
        self._begun_and_ended += 1
        return Sample(
            {self._policy_id: one_after_the_other(found)},
            [],
            env_steps=count,
            progress=count,
            worker_index=self.worker_index,
            timers={"sample": time.perf_counter() - started},
        )

    def _next(self) -> Rollout:
        if (found := next(self._reading, None)) is None:
            self._reading, self._taken = self._source.read(), 0
            found = next(self._reading)  # `read` raises where there is none
        self._taken += 1
        return found

    def state(self) -> State:
        """As of every worker, and how far of its share was read."""
        return super().state() | {"taken": self._taken, "readers": self.config.num_rollout_workers}

    def set_state(self, state: State) -> None:
        """Restore what `state` returned; with another number of workers, which have other shares, begin with these."""
        super().set_state(state)
        self._reading, self._taken = iter(()), 0
        if state.get("readers") == self.config.num_rollout_workers:
            for _ in range(state["taken"]):
                self._next()


def one_after_the_other(rollouts: list[Rollout]) -> Rollout:
    """Rollouts [T_i, 1] of whole episodes as one."""
    if len(rollouts) == 1:
        return rollouts[0]
    columns: dict[str, Any] = {name: np.concatenate([getattr(each, name) for each in rollouts]) for name in COLUMNS}
    return Rollout(**columns)
