"""Sampling in this process: a worker set without Ray."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from reef.batch import Sample
from reef.config import AlgorithmConfig
from reef.rollout.worker import RolloutWorker
from reef.types import PolicyId, State, Weights

T = TypeVar("T")


def without_episodes(workers: State) -> State:
    """The state of workers that begin new episodes."""
    remote = [worker and worker | {"env": None} for worker in workers["remote"]]
    return workers | {"local": workers["local"] | {"env": None}, "remote": remote}


class LocalWorkers:
    """The `Workers` of `num_rollout_workers=0`."""

    num_healthy = 1
    num_waiting = num_lost = num_here = num_restarts = 0
    problem = ""

    def __init__(self, config: AlgorithmConfig, worker: RolloutWorker | None = None) -> None:
        """Make the one worker, with its environments, unless it is given."""
        self._worker = worker or RolloutWorker(config)
        self._most = config.max_requests_in_flight_per_sampler_worker
        self._requested: list[Sample] = []

    def local_worker(self) -> RolloutWorker:
        """The one worker."""
        return self._worker

    def sample(self, steps: int | None = None, anew: bool = False) -> list[Sample]:
        """One fragment."""
        return [self._worker.sample(steps, anew)]

    def sample_episodes(self, count: int) -> list[Sample]:
        """Exactly `count` new episodes."""
        return [self._worker.sample_episodes(count)]

    @property
    def healthy(self) -> list[int]:
        """The index of the one worker."""
        return [self._worker.worker_index]

    def request(self, index: int) -> bool:
        """Sample a fragment now and hold it until `ready`; False when as many as are allowed are held."""
        if index not in self.healthy or len(self._requested) >= self._most:
            return False
        self._requested.append(self._worker.sample())
        return True

    def ready(self, timeout_s: float | None = None) -> list[Sample]:
        """The requested fragments; nothing to wait for."""
        samples, self._requested = self._requested, []
        return samples

    def set_weights(self, weights: Weights, version: int, timestep: int, to: int | None = None) -> None:
        """Publish weights."""
        self._worker.set_weights(weights, version, timestep)

    def foreach_worker(self, fn: Callable[[RolloutWorker], T]) -> list[T]:
        """[fn(worker)]."""
        return [fn(self._worker)]

    def foreach_worker_with_index(self, fn: Callable[[RolloutWorker, int], T]) -> list[T]:
        """[fn(worker, 0)]."""
        return [fn(self._worker, 0)]

    def set_filters(self, filters: dict[PolicyId, State]) -> None:
        """Give the worker the observation statistics of another."""
        self._worker.set_filters(filters)

    def synchronize_filters(self) -> None:
        """Nobody needs to be told what the one filter saw."""
        self._worker.filter_deltas()

    def resize(self, count: int) -> None:
        """Nothing to do: this process is all the room there is."""

    def state(self) -> State:
        """The worker's state, as the local one of a set."""
        return {"local": self._worker.state(), "remote": []}

    def set_state(self, state: State) -> None:
        """The reverse of `state`; what sampled remotely before goes on here as far as it fits."""
        own = state["local"]
        remote = [stored for stored in state["remote"] if stored is not None]  # null: it had failed
        if own["env"] is None and remote:
            own = remote[0] | {"filters": own["filters"]}
        self._worker.set_state(own)
        self._requested.clear()  # they belong to what is left behind

    def stop(self) -> None:
        """Close the environments."""
        self._worker.stop()
