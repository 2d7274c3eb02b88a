"""Sampling in other processes: the `Workers` of `num_rollout_workers` > 0."""

from __future__ import annotations

import math
import time
import traceback
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

import ray
from ray import cloudpickle

from reef.batch import Sample
from reef.config import AlgorithmConfig
from reef.distributed.actor_group import ActorGroup
from reef.distributed.failure_policy import FaultTolerance
from reef.distributed.resources import (
    ElasticPlacement,
    check_resources,
    in_a_trial,
    is_beside_training,
    is_elastic,
    may_wait_for_room,
    reserve,
    worker_bundle,
)
from reef.distributed.slot import ActorSpec, Process
from reef.distributed.start import start
from reef.errors import CallbackError, WorkerError
from reef.rollout.curriculum import set_tasks, stored_tasks, tasks_of
from reef.rollout.filters import MeanStdFilter
from reef.rollout.seams import called_with_index
from reef.rollout.worker import RolloutWorker
from reef.run.process.deadline import Deadline
from reef.types import PolicyId, State, Weights

T = TypeVar("T")
SENT_ALONG_BYTES = 64 * 1024  # Ray puts an argument of more than 100 KiB into its store, for each call again
# What workers are there for: methods, each with the setting that limits its time.
WORK = dict.fromkeys(("sample", "sample_episodes", "sample_share", "collect"), "sample_timeout_s") | {
    "improve": "worker_restore_timeout_s"
}
BESIDE_TRAINING_S = 20.0  # how long training waits for the workers of an evaluation beside it, which may have no room
ASK_FOR_ROOM_S = 30.0  # without any worker, which is longer than a start takes that has room
ELASTIC_PATIENCE_S = 5.0  # how long the first workers wait for those that may have no room yet


class RayWorkers:
    """One worker in this process that holds the policy, and actors with the indices 1..count that sample.

    A local Ray is started, and left to the end of the process, where none runs. Failures of actors are covered as the
    settings `fault_tolerance` say; a replacement gets the newest weights and filters before it samples.
    """

    def __init__(
        self,
        config: AlgorithmConfig,
        count: int,
        local: RolloutWorker | None = None,
        *,
        worker_class: type[RolloutWorker] | str = RolloutWorker,
        evaluation: bool = False,
        deadline: Deadline | None = None,
        ask_for_room: Callable[[], None] = lambda: None,
    ) -> None:
        """`local`: the worker of this process, where it is there already; `worker_class`: that of the actors.

        `ask_for_room` is called where nodes come and go, and none of them has been up for `ASK_FOR_ROOM_S`.
        Raises ResourceError when the cluster is too small, WorkerError when workers cannot be made.
        """
        start()
        check_resources(config)
        self._config, self._deadline = config, deadline or Deadline()
        self._policies_changed = False  # since the first workers were started
        self._local = local or RolloutWorker(config, 0, with_env=config.create_env_on_local_worker)
        self._newest: Weights | None = None
        self._stored: Any = None  # the newest weights, or a reference to them in Ray's store
        self._known: set[int] = set()  # workers that were ready once
        self._recreated: list[int] = []  # and again, and `take_recreated` has not returned them
        self._fixed: Weights = {}  # of policies that do not learn
        self._published: tuple[Any, int, int] | None = None  # stored weights, version, timestep
        self._tasks: dict[int, list[Any]] = {}  # of the environments of each worker, where they have some
        self._arrived: defaultdict[int, deque[Sample]] = defaultdict(deque)  # sampled ahead
        self._limits = limits_of(config, evaluation=evaluation)
        elastic = ElasticPlacement(config) if may_wait_for_room(config) and is_elastic() and not in_a_trial() else None
        first = 1 if evaluation else 1 + config.evaluation_num_workers  # as in `trial_bundles`
        self._ask_for_room, self._healthy_at = ask_for_room, math.inf
        self._placement = elastic or reserve(config, [worker_bundle(config)] * count, first, self._deadline)
        spec = ActorSpec(
            name="evaluation worker" if evaluation else "rollout worker",
            target=worker_class,
            arguments=lambda index, recreated: {"config": self._config, "worker_index": index, "recreated": recreated},
            options=self._placement.options,
            threads=config.torch_threads_per_worker,
            has_mailbox=(config.asynchronous or config.decentralized) and not evaluation,
            environment=config.extra_python_environs_for_worker,
            work=WORK,
        )
        try:
            self._group = ActorGroup(
                spec,
                count,
                self._limits,
                on_entered=self._bring_up_to_date,
                wait_s=patience_with_first_workers(config),
                patience_s=ELASTIC_PATIENCE_S if elastic else None,
                room=self._room if elastic and not evaluation else None,
                deadline=self._deadline,
            )
        except BaseException:
            self._placement.remove()
            raise

    def _room(self, count: int) -> int:
        """As `ElasticPlacement.room`, and have others give way while no worker finds any, after some were up."""
        assert isinstance(self._placement, ElasticPlacement)
        if self._known and self.num_healthy:
            self._healthy_at = time.monotonic()
        elif time.monotonic() - self._healthy_at > ASK_FOR_ROOM_S:
            self._healthy_at = math.inf
            self._ask_for_room()
        return self._placement.room(count)

    def _bring_up_to_date(self, group: ActorGroup, indices: list[int]) -> None:
        self._group = group  # the first come up while it is being made
        self._recreated += [index for index in indices if index in self._known]
        self._known.update(indices)
        limit = self._limits.worker_health_probe_timeout_s
        if self._policies_changed:  # perhaps while they were starting
            group.call_some("set_policies", dict.fromkeys(indices, (self._config,)), timeout_s=limit)
        if self._published is not None:
            group.call_some("set_acting_weights", dict.fromkeys(indices, self._published), timeout_s=limit)
            if self._fixed:
                group.call_some("load_acting_weights", dict.fromkeys(indices, (self._fixed,)), timeout_s=limit)
            group.call_some("apply", dict.fromkeys(indices, (take_filters, self._local.filters)), timeout_s=limit)
        self._hand_over_tasks(indices)

    def _hand_over_tasks(self, indices: Collection[int]) -> None:
        """Give the environments of workers the tasks of those that they replace, or of others."""
        if self._tasks:
            others = next(iter(self._tasks.values()))
            tasks = {index: (set_tasks, self._tasks.get(index, others)) for index in indices}
            self._group.call_some("apply", tasks, timeout_s=self._limits.worker_health_probe_timeout_s)

    @property
    def num_healthy(self) -> int:
        """Actors that can sample now."""
        return len(self._group.healthy)

    @property
    def num_waiting(self) -> int:
        """Actors that have no room."""
        return self._group.num_waiting

    @property
    def num_lost(self) -> int:
        """Actors that have room and are not at work."""
        return max(self._group.size - self.num_waiting - self.num_healthy, 0)

    @property
    def num_here(self) -> int:
        """Actors on this process's node."""
        return self._group.num_on(ray.get_runtime_context().get_node_id())

    @property
    def num_restarts(self) -> int:
        """Replacements started so far."""
        return self._group.num_restarts

    def take_recreated(self) -> list[int]:
        """The actors that were started again and can sample, since the last call."""
        recreated, self._recreated = self._recreated, []
        return recreated

    @property
    def problem(self) -> str:
        """Why the first failed actor stopped, until it samples again; empty while all is well."""
        return self._group.problem

    @property
    def healthy(self) -> list[int]:
        """The indices that `request` takes."""
        return self._group.healthy

    def resize(self, count: int) -> None:
        """Where nodes come and go have `count` actors, at least one: more when they have room, others are let go."""
        if isinstance(self._placement, ElasticPlacement):
            self._group.resize(max(count, 1))

    def local_worker(self) -> RolloutWorker:
        """The worker in this process."""
        return self._local

    def sample(self, steps: int | None = None, reset_episodes: bool = False) -> list[Sample]:
        """One fragment from every healthy worker, in the order of their indices.

        With `sample_async` the oldest of `max_requests_in_flight_per_sampler_worker` fragments that each worker has
        begun ahead; only fragments with the default settings are, none with `steps` or `reset_episodes`.
        """
        if self._config.sample_async and steps is None and not reset_episodes:
            return self._sample_ahead()
        samples: dict[int, Sample] = {}
        while not samples:
            fragments = {index: (steps or length, reset_episodes) for index, length in self._fragment_lengths().items()}
            samples = self._group.call_some("sample", fragments, timeout_s=self._limits.request_timeout_s)
        return list(samples.values())

    def _fragment_lengths(self) -> dict[int, int]:
        """Steps of the next fragment by the indices of the healthy workers; waits for one."""
        healthy = self._group.await_healthy()
        return {index: self._config.fragment_length(rank, len(healthy)) for rank, index in enumerate(healthy, 1)}

    def _sample_ahead(self) -> list[Sample]:
        self._begin_fragments()
        while not all(self._arrived[index] for index in self._group.healthy):
            for sample in self.ready():
                self._arrived[sample.worker_index].append(sample)
            self._begin_fragments()
        samples = [arrived.popleft() for _, arrived in sorted(self._arrived.items()) if arrived]
        self._begin_fragments()
        return samples

    def _begin_fragments(self) -> None:
        """Keep every worker busy; none is further ahead of the learner than the setting says."""
        for index, steps in self._fragment_lengths().items():
            ahead = self._group.num_in_flight(index) + len(self._arrived[index])
            for _ in range(ahead, self._limits.max_requests_in_flight):
                self._group.request(index, "sample", steps)

    def sample_episodes(self, count: int) -> list[Sample]:
        """At most `count` new episodes: those of a worker that fails meanwhile are missing."""
        healthy = self._group.await_healthy()
        each, more = divmod(count, len(healthy))
        shares = {index: (each + (rank < more),) for rank, index in enumerate(healthy) if each + (rank < more)}
        done = self._group.call_some("sample_episodes", shares, timeout_s=self._limits.request_timeout_s)
        return list(done.values())

    def collect(self, fn: Callable[[RolloutWorker], T]) -> list[T]:
        """Call `fn(worker)` in every healthy worker, in the order of their indices."""
        results = self._group.call_all("collect", fn, timeout_s=self._limits.request_timeout_s)
        return [results[index] for index in sorted(results)]

    def call_some(self, method: str, arguments: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
        """Call a method of some workers, each with its own arguments; those that fail are left out."""
        limit: float = getattr(self._config, WORK.get(method, "worker_restore_timeout_s"))
        return self._group.call_some(method, arguments, timeout_s=limit)

    def processes(self) -> dict[int, Process]:
        """The processes of the healthy workers, by index; waits for one."""
        return {index: self._group.process(index) for index in self._group.await_healthy()}

    def request(self, index: int) -> bool:
        """Ask a worker for a fragment; False when it has failed or as many as are allowed are under way."""
        return self._group.request(index, "sample")

    def ready(self, timeout_s: float | None = None, most: int | None = None) -> list[Sample]:
        """Requested fragments that are there: at least one, unless time runs out or none was requested."""
        return [sample for _, sample in self._group.ready(timeout_s, most)]

    def set_weights(self, weights: Weights, version: int, timestep: int, to: Collection[int] | None = None) -> None:
        """Publish weights: loaded by each worker, or by the workers `to`, before its next fragment.

        Large ones are put into Ray's store once, also where one worker after the other gets the same object. The local
        worker and replacements always have the newest.
        """
        self._local.set_weights(weights, version, timestep)
        if weights is not self._newest:
            acting = self._local.acting_weights(weights)
            large = sum(vector.nbytes for vector in acting.values()) > SENT_ALONG_BYTES
            self._newest, self._stored = weights, ray.put(acting) if large else acting
        first, self._published = self._published is None, (self._stored, version, timestep)
        if self._config.asynchronous and self._group.has_mailbox and not first:
            # for the next fragment, before those that are requested
            self._group.send("post_weights", *self._published, to=to, at_once=True)
        else:
            self._group.send("set_acting_weights", *self._published, to=to)

    def set_fixed_weights(self, weights: Weights) -> None:
        """Send the weights of policies that do not learn, which the worker of this process has, to the others."""
        self._fixed = self._local.acting_weights(weights)
        if self._fixed:
            self._group.send("load_acting_weights", self._fixed)

    def foreach_worker(self, fn: Callable[[RolloutWorker], T]) -> list[T]:
        """Call `fn(worker)` in every worker's process, the local one first; WorkerError when it raises there."""
        limit, values = self._limits.worker_restore_timeout_s, [fn(self._local)]
        for index, (value, problem, tasks) in self._group.call_all("apply", attempt, fn, timeout_s=limit).items():
            if value is None:  # no fault of the worker, which stays
                raise WorkerError(f"a function raised in the process of rollout worker {index}:\n{problem}")
            values.append(cloudpickle.loads(value))
            if tasks:
                self._tasks[index] = tasks
        return values

    def foreach_worker_with_index(self, fn: Callable[..., T]) -> list[T]:
        """Call `fn(worker, index)`, or `fn(index, worker)`, in every worker's process, the local one first."""
        return self.foreach_worker(called_with_index(fn))

    def set_policies(self, config: AlgorithmConfig) -> None:
        """Act with the policies and the mapping function of `config`, after the fragments that were requested."""
        self._local.set_policies(config)  # which may refuse them
        self._config, self._policies_changed = config, True  # of replacements too
        self._group.call_all("set_policies", config, timeout_s=self._limits.worker_restore_timeout_s)

    def set_filters(self, filters: dict[PolicyId, State]) -> None:
        """Give all workers the observation statistics of others; each takes them before its next fragment."""
        self._local.set_filters(filters)
        self._group.send("set_filters", filters)

    def synchronize_filters(self) -> None:
        """Merge what the workers saw into the local worker's filters and give all workers the sum.

        Without the setting `synchronize_filters` workers keep their own, and the sum is for evaluation and checkpoints.
        """
        if self._config.observation_filter == "NoFilter":
            return
        limit = self._limits.request_timeout_s
        if limit is not None:  # fragments that were requested come first
            limit *= 1 + max((self._group.num_in_flight(index) for index in self._group.healthy), default=0)
        if self._config.use_worker_filter_stats:
            for deltas in self._group.call_all("filter_deltas", timeout_s=limit).values():
                for policy_id in deltas.keys() & self._local.filters.keys():
                    self._local.filters[policy_id].merge(deltas[policy_id])
        if self._config.synchronize_filters and self._config.update_worker_filter_stats:
            self._group.send("apply", take_filters, self._local.filters)

    def state(self) -> State:
        """The states of all workers; null for one that has failed, and, when the process is to end, for a late one."""
        states = self._group.states()
        return {
            "local": self._local.state(),
            "remote": [states.get(index + 1) for index in range(max([self._group.size, *states]))],
        }

    def set_state(self, state: State) -> None:
        """The reverse of `state`; workers that it does not know get the filters and begin new episodes."""
        self._group.drop_requests()  # fragments belong to what is left behind, also those that have arrived
        for arrived in self._arrived.values():
            arrived.clear()
        self._local.set_state(state["local"])
        stored = state["remote"] or [state["local"]]
        healthy = self._group.healthy  # one that comes later begins new episodes
        known = {index: (one,) for index, one in enumerate(stored, start=1) if one is not None and index in healthy}
        self._group.send("apply", reset_episodes, self._local.filters)
        self._group.call_some("set_state", known, timeout_s=self._limits.worker_restore_timeout_s)
        self._tasks = {index: tasks for index, one in enumerate(stored, 1) if one and (tasks := stored_tasks(one))}
        self._hand_over_tasks(healthy)
        if not state["remote"]:
            self._group.send("filter_deltas")  # the local filters know what the one worker saw

    def stop(self) -> None:
        """End the actors and give their room back."""
        self._group.stop()
        self._placement.remove()
        self._local.stop()


def limits_of(config: AlgorithmConfig, *, evaluation: bool) -> FaultTolerance:
    """The fault tolerance of workers with these settings."""
    return FaultTolerance.of(
        config,
        request_timeout_s=config.sample_timeout_s,
        max_requests_in_flight=config.max_requests_in_flight_per_sampler_worker,
        late_is_an_error=evaluation,
    )


def patience_with_first_workers(config: AlgorithmConfig) -> float:
    """Seconds to wait for the first of these workers."""
    if not config.validate_workers_after_construction:
        return 0.0
    return BESIDE_TRAINING_S if is_beside_training(config) else math.inf


def attempt(worker: RolloutWorker, fn: Callable[[RolloutWorker], Any]) -> tuple[bytes | None, str, list[Any]]:
    """What `fn(worker)` returns, or None and the traceback of why it cannot be had; and the tasks that it left."""
    try:
        value: bytes = cloudpickle.dumps(fn(worker))  # type: ignore[no-untyped-call]
        return value, "", tasks_of(worker)
    except CallbackError:  # ends the run
        raise
    except Exception:
        return None, traceback.format_exc(), []


def reset_episodes(worker: RolloutWorker, central: dict[PolicyId, MeanStdFilter]) -> None:
    """Let a worker begin new episodes, with the central filters."""
    worker.reset_episodes()
    take_filters(worker, central)


def take_filters(worker: RolloutWorker, central: dict[PolicyId, MeanStdFilter]) -> None:
    """Let a worker's filters continue from the central ones."""
    for policy_id in central.keys() & worker.filters.keys():
        worker.filters[policy_id].sync(central[policy_id])
