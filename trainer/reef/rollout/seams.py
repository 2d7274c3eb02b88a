"""The protocol between an algorithm and its sampling workers, in this process or as Ray actors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from typing import Protocol, TypeVar

from reef.batch import Sample
from reef.config import AlgorithmConfig
from reef.config.loading import load_function
from reef.rollout.worker import RolloutWorker
from reef.types import PolicyId, State, Weights

T = TypeVar("T")
INDEX_NAMES = ("i", "id", "idx", "index", "n", "num", "number", "worker_id", "worker_idx", "worker_index")


class Workers(Protocol):
    """One local worker, and any number of remote workers that sample instead of it."""

    num_healthy: int  # workers that can sample now
    num_waiting: int  # workers that wait for resources, on an elastic cluster
    num_lost: int  # workers that have resources and cannot sample now
    num_here: int  # workers in processes of their own on this machine
    num_restarts: int  # so far
    problem: str  # why the first failed worker stopped, until it samples again; empty without a problem

    def take_recreated(self) -> list[int]:
        """The indices of the workers that were started again and can sample, since the last call."""

    def local_worker(self) -> RolloutWorker:
        """The worker in this process: it always has the policies, and environments if it samples itself."""

    def sample(self, steps: int | None = None, reset_episodes: bool = False) -> list[Sample]:
        """One fragment from every healthy worker, ordered by index; `steps` per column if given.

        With `reset_episodes` new episodes start with it; otherwise the running ones go on.
        """

    def sample_episodes(self, count: int) -> list[Sample]:
        """`count` new episodes, divided between the healthy workers; those of one that fails meanwhile are missing."""

    def collect(self, fn: Callable[[RolloutWorker], T]) -> list[T]:
        """Call `fn(worker)` in every healthy worker that samples; one in which it raises has failed as in `sample`."""

    @property
    def healthy(self) -> list[int]:
        """The indices of the workers that accept a `request` now."""

    def request(self, index: int) -> bool:
        """Request a fragment from a worker; False if it is lost or has `max_requests_in_flight_per_sampler_worker`."""

    def ready(self, timeout_s: float | None = None, most: int | None = None) -> list[Sample]:
        """Finished fragments that were requested: at least one, unless time runs out or none was requested.

        Of many workers no more than `most` at a time, the oldest requests first. Fragments of one worker arrive in the
        order of its requests; requests to a lost worker are dropped.
        """

    def set_weights(self, weights: Weights, version: int, timestep: int, to: Collection[int] | None = None) -> None:
        """Publish weights to all workers, or to those with the indices `to`; `timestep` drives exploration schedules.

        The worker of this process gets whole policies, those of other processes the parameters that they act with.
        A worker uses them after the fragments that were requested before. Filters are published separately: see
        `synchronize_filters`.
        """

    def set_fixed_weights(self, weights: Weights) -> None:
        """Give all workers the weights of policies that do not learn, which `set_weights` leaves out."""

    def foreach_worker(self, fn: Callable[[RolloutWorker], T]) -> list[T]:
        """Call `fn(worker)` in every worker's process, the local one first."""

    def foreach_worker_with_index(self, fn: Callable[..., T]) -> list[T]:
        """Call `fn(worker, index)` in every worker's process, the local one (index 0) first.

        A function whose parameters are named the other way round, such as `(id, worker)`, gets them in that order.
        """

    def set_policies(self, config: AlgorithmConfig) -> None:
        """Act with the policies and the mapping function of `config` from the next episodes on."""

    def set_filters(self, filters: dict[PolicyId, State]) -> None:
        """Replace the observation statistics of all workers."""

    def synchronize_filters(self) -> None:
        """Merge the workers' filter statistics since the last call, and publish the result to all of them."""

    def resize(self, count: int) -> None:
        """On an elastic cluster, change to `count` workers, at least one: start more if there is room, or stop some."""

    def state(self) -> State:
        """The states of all workers."""

    def set_state(self, state: State) -> None:
        """Restore what `state` returned, also with another number of workers."""

    def stop(self) -> None:
        """Close environments and end processes."""


def called_with_index(fn: Callable[..., T]) -> Callable[[RolloutWorker], T]:
    """A function of a worker that calls `fn` with the worker and its index, in the order of its parameters' names.

    The index comes first where the first parameter is called as one, such as `i`, `id` or `worker_index`, and the
    second is not. Raises ConfigError for a function that does not take two arguments.
    """
    fn = load_function(fn, "foreach_worker_with_index", "worker", "index")
    names = [name.strip("_").lower() for name in list(inspect.signature(fn).parameters)[:2]]
    first, *others = [name in INDEX_NAMES for name in names]
    if first and others == [False]:
        return lambda worker: fn(worker.worker_index, worker)
    return lambda worker: fn(worker, worker.worker_index)
