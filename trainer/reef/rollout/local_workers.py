"""Sampling in this process, without Ray."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

from reef.batch import Sample
from reef.config import AlgorithmConfig
from reef.envs.curriculum.tasks import TASKS
from reef.rollout.curriculum import set_tasks, stored_tasks
from reef.rollout.seams import called_with_index
from reef.rollout.worker import RolloutWorker
from reef.types import PolicyId, State, Weights

T = TypeVar("T")


def without_episodes(workers: State) -> State:
    """The state of workers without their running episodes, so that new ones start, with the same tasks."""
    each = workers["local"], *workers["remote"]
    local, *remote = (worker and worker | {"env": None, TASKS: stored_tasks(worker)} for worker in each)
    return workers | {"local": local, "remote": remote}


class LocalWorkers:
    """`Workers` for `num_rollout_workers=0`."""

    num_healthy = 1
    num_waiting = num_lost = num_here = num_restarts = 0
    problem = ""

    def __init__(self, config: AlgorithmConfig, worker: RolloutWorker | None = None) -> None:
        """Make the only worker with its environments, unless it is given."""
        self._worker = worker or RolloutWorker(config)
        self._most = config.max_requests_in_flight_per_sampler_worker
        self._requested: list[Sample] = []

    def take_recreated(self) -> list[int]:
        """Nothing: this process is not started again."""
        return []

    def local_worker(self) -> RolloutWorker:
        """The only worker."""
        return self._worker

    def sample(self, steps: int | None = None, reset_episodes: bool = False) -> list[Sample]:
        """One fragment."""
        return [self._worker.sample(steps, reset_episodes)]

    def sample_episodes(self, count: int) -> list[Sample]:
        """Exactly `count` new episodes."""
        return [self._worker.sample_episodes(count)]

    def collect(self, fn: Callable[[RolloutWorker], T]) -> list[T]:
        """[fn(worker)]."""
        return [fn(self._worker)]

    @property
    def healthy(self) -> list[int]:
        """The index of the only worker."""
        return [self._worker.worker_index]

    def request(self, index: int) -> bool:
        """Sample a fragment now and keep it for `ready`; False if the maximum number is already kept."""
        if index not in self.healthy or len(self._requested) >= self._most:
            return False
        self._requested.append(self._worker.sample())
        return True

    def ready(self, timeout_s: float | None = None, most: int | None = None) -> list[Sample]:
        """Return the requested fragments at once."""
        samples, self._requested = self._requested, []
        return samples

    def set_weights(self, weights: Weights, version: int, timestep: int, to: Collection[int] | None = None) -> None:
        """Publish weights."""
        self._worker.set_weights(weights, version, timestep)

    def set_fixed_weights(self, weights: Weights) -> None:
        """Do nothing: the one worker has them."""

    def foreach_worker(self, fn: Callable[[RolloutWorker], T]) -> list[T]:
        """[fn(worker)]."""
        return [fn(self._worker)]

    def foreach_worker_with_index(self, fn: Callable[..., T]) -> list[T]:
        """[fn(worker, 0)], or [fn(0, worker)]."""
        return [called_with_index(fn)(self._worker)]

    def set_policies(self, config: AlgorithmConfig) -> None:
        """Act with the policies and the mapping function of `config` from the next episodes on."""
        self._worker.set_policies(config)

    def set_filters(self, filters: dict[PolicyId, State]) -> None:
        """Replace the observation statistics of the worker."""
        self._worker.set_filters(filters)

    def synchronize_filters(self) -> None:
        """Do nothing: there is only one filter."""
        self._worker.filter_deltas()

    def resize(self, count: int) -> None:
        """Do nothing: the number of workers in this process is fixed."""

    def state(self) -> State:
        """The worker's state, as that of the local worker of a set."""
        return {"local": self._worker.state(), "remote": []}

    def set_state(self, state: State) -> None:
        """Restore what `state` returned; episodes of remote workers go on here as far as there are columns for them."""
        own = state["local"]
        remote = [stored for stored in state["remote"] if stored is not None]  # null: the worker had failed
        if own["env"] is None and remote:
            own = remote[0] | {"filters": own["filters"]}
        self._worker.set_state(own)
        if tasks := stored_tasks(own):
            set_tasks(self._worker, tasks)
        self._requested.clear()  # they belong to the state before

    def stop(self) -> None:
        """Close the environments."""
        self._worker.stop()
