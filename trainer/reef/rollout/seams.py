"""The seam between an algorithm and those who sample for it: in this process, or as Ray actors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from reef.batch import Sample
from reef.rollout.worker import RolloutWorker
from reef.types import PolicyId, State, Weights

T = TypeVar("T")


class Workers(Protocol):
    """One local worker, and any number of remote ones that sample in its place."""

    num_healthy: int  # workers that can sample now
    num_waiting: int  # workers without room, where nodes come and go
    num_lost: int  # workers that have room and cannot sample now
    num_here: int  # workers in processes of their own on this machine
    num_restarts: int  # so far
    problem: str  # why the first failed one stopped, until it samples again; empty while all is well

    def local_worker(self) -> RolloutWorker:
        """The worker in this process: it always has the policy, and environments when it samples itself."""
        ...

    def sample(self, steps: int | None = None, anew: bool = False) -> list[Sample]:
        """One fragment from every healthy worker, in the order of their indices; `steps` per column if given.

        With `anew` episodes begin with it instead of going on.
        """
        ...

    def sample_episodes(self, count: int) -> list[Sample]:
        """Exactly `count` new episodes, shared out over the healthy workers."""
        ...

    @property
    def healthy(self) -> list[int]:
        """The indices of the workers that `request` takes now."""
        ...

    def request(self, index: int) -> bool:
        """Ask a worker for a fragment; False when it is lost or has `max_requests_in_flight_per_sampler_worker`."""
        ...

    def ready(self, timeout_s: float | None = None) -> list[Sample]:
        """Requested fragments that are done: at least one, unless time runs out or none was requested.

        Those of one worker come in the order of its requests; what a lost worker was asked for does not come.
        """
        ...

    def set_weights(self, weights: Weights, version: int, timestep: int, to: int | None = None) -> None:
        """Publish weights to all workers, or to the worker `to`; `timestep` drives exploration schedules.

        The worker of this process gets whole policies, those of other processes the parameters that they act with.
        A worker takes them after the fragments that it was asked for before. Filters are another matter: see
        `synchronize_filters`.
        """
        ...

    def foreach_worker(self, fn: Callable[[RolloutWorker], T]) -> list[T]:
        """Call `fn(worker)` in every worker's process, the local one first."""
        ...

    def foreach_worker_with_index(self, fn: Callable[[RolloutWorker, int], T]) -> list[T]:
        """Call `fn(worker, index)` in every worker's process, the local one (index 0) first."""
        ...

    def set_filters(self, filters: dict[PolicyId, State]) -> None:
        """Give all workers the observation statistics of others."""
        ...

    def synchronize_filters(self) -> None:
        """Merge what the workers' observation filters have seen since the last time, and give all of them the sum."""
        ...

    def resize(self, count: int) -> None:
        """Where nodes come and go have `count` workers, at least one: more when they have room, others are let go."""
        ...

    def state(self) -> State:
        """The states of all workers."""
        ...

    def set_state(self, state: State) -> None:
        """The reverse of `state`, also for another number of workers."""
        ...

    def stop(self) -> None:
        """Close environments and end processes."""
        ...
