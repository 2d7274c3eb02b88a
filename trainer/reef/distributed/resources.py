"""What the processes of a job need, whether the cluster has it, and where they are placed."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ray
from ray._private.state import available_resources_per_node
from ray.util.placement_group import get_current_placement_group, placement_group, remove_placement_group
from ray.util.scheduling_strategies import Exists, In, NodeLabelSchedulingStrategy, PlacementGroupSchedulingStrategy

from reef.config import AlgorithmConfig
from reef.distributed.node_settings import ELASTIC, OF_POOL, WORKERS_LABEL
from reef.distributed.slot import SLICE_S
from reef.errors import ResourceError
from reef.run.process.deadline import Deadline

log = logging.getLogger(__name__)
Bundle = dict[str, float]  # resource name to amount, of one process
SAY_AFTER_S = 10.0  # waiting longer than this is worth a line
ROLLOUT_WORKERS = "num_rollout_workers"
IN_BYTES = ("memory", "object_store_memory")
EMPTY_BUNDLE = {"CPU": 0.001}  # of a process that asks for nothing: Ray refuses bundles without resources


@dataclass(frozen=True, slots=True)
class Demand:
    """`count` equal processes and the keys that ask for them."""

    count: int
    count_key: str
    bundle: Bundle
    keys: Mapping[str, str]  # resource name to the setting that gives its amount
    in_pools: bool = False  # one by one, as nodes come and go, and only on those with WORKERS_LABEL

    @property
    def to_begin(self) -> int:
        """How many of them a job begins with at least: fewer rollout workers do, and fewer of no other."""
        return min(self.count, 1) if self.count_key == ROLLOUT_WORKERS else self.count

    @property
    def to_go_on(self) -> int:
        """How many of them training and evaluation go on with at least, when nodes are lost."""
        return min(self.to_begin, 1) if self.in_pools else self.to_begin

    @property
    def needs(self) -> str:
        """What one process reserves, by the settings that say so."""
        return ", ".join(f"{self.keys[name]} {amount:g}" for name, amount in self.bundle.items())

    def term(self, resource: str) -> str:
        """The product as a person would write it."""
        return f"{self.count_key} {self.count} x {self.keys[resource]} {self.bundle[resource]:g}"


def demands(config: AlgorithmConfig, *, with_driver: bool = False) -> list[Demand]:
    """Processes of these settings: rollout workers, evaluation workers, learners.

    The driver is a process outside Ray and counts only where Ray places it too: `with_driver`, as a trial of a sweep,
    for which room is reserved wherever there is some. So do evaluation workers without `evaluation_interval`: only a
    call of `evaluate()` would start them.
    """
    worker, learner, in_pools = worker_bundle(config), learner_bundle(config), may_wait_for_room(config)
    worker_keys = {name: f"custom_resources_per_worker[{name!r}]" for name in worker}
    worker_keys |= {"CPU": "num_cpus_per_worker", "GPU": "num_gpus_per_worker"}
    learner_keys = {"CPU": "num_cpus_per_learner_worker", "GPU": "num_gpus_per_learner_worker"}
    if config.in_evaluation:
        found = [Demand(config.num_rollout_workers, "evaluation_num_workers", worker, worker_keys, in_pools)]
    else:
        driver = driver_bundle(config) if with_driver else {}
        evaluates = config.evaluation_num_workers and (config.evaluation_interval or with_driver)
        evaluation = demands(config.evaluation_settings()) if evaluates else []
        found = [
            Demand(1, "driver", driver, {"CPU": "num_cpus_for_local_worker", "GPU": "num_gpus"}),
            Demand(config.num_rollout_workers, ROLLOUT_WORKERS, worker, worker_keys, in_pools),
            *evaluation,
            Demand(config.num_learner_workers, "num_learner_workers", learner, learner_keys),
        ]
    found = [demand for demand in found if demand.count and demand.bundle]
    return [replace(demand, in_pools=False) for demand in found] if with_driver else found


def worker_bundle(config: AlgorithmConfig) -> Bundle:
    """What one rollout worker reserves."""
    gpus = _real_gpus(config, config.num_gpus_per_worker)
    return _bundle(config.num_cpus_per_worker, gpus, config.custom_resources_per_worker)


def learner_bundle(config: AlgorithmConfig) -> Bundle:
    """What one learner reserves."""
    return _bundle(config.num_cpus_per_learner_worker, _real_gpus(config, config.num_gpus_per_learner_worker), {})


def driver_bundle(config: AlgorithmConfig) -> Bundle:
    """What the process of a trial reserves for its policy and, unless that is elsewhere, its learner."""
    return _bundle(config.num_cpus_for_local_worker, _real_gpus(config, config.num_gpus), {})


def trial_bundles(config: AlgorithmConfig) -> list[Bundle]:
    """The room of a trial, one bundle for each process: its own, evaluation workers, rollout workers, learners."""
    evaluation = [worker_bundle(config.evaluation_settings())] * config.evaluation_num_workers
    rollouts = [worker_bundle(config)] * config.num_rollout_workers
    learners = [learner_bundle(config)] * config.num_learner_workers
    return [bundle or EMPTY_BUNDLE for bundle in [driver_bundle(config), *evaluation, *rollouts, *learners]]


def _real_gpus(config: AlgorithmConfig, gpus: float) -> float:
    return 0.0 if config._fake_gpus else gpus


def _bundle(cpus: float, gpus: float, custom: Mapping[str, float]) -> Bundle:
    return {name: amount for name, amount in {"CPU": cpus, "GPU": gpus, **custom}.items() if amount}


def _cluster() -> dict[str, float]:
    return dict(ray.cluster_resources())  # type: ignore[no-untyped-call]


def _free() -> str:
    """What is free in the cluster, as a person would write it."""
    free: dict[str, float] = ray.available_resources()  # type: ignore[no-untyped-call]
    return ", ".join(_shown(name, free[name]) for name in sorted(free) if not name.startswith("node:"))


def _shown(name: str, amount: float) -> str:
    return f"{name} {amount / 2**30:.1f} GiB" if name in IN_BYTES else f"{name} {amount:g}"


def is_elastic() -> bool:
    """Whether nodes of this cluster come and go, so that what is there now says little about what there will be."""
    return ELASTIC in _cluster()


def may_wait_for_room(config: AlgorithmConfig) -> bool:
    """Whether these settings let rollout workers come one by one, where nodes come and go."""
    return config.recreate_failed_workers and not config.placement_strategy.startswith("STRICT")


def is_beside_training(config: AlgorithmConfig) -> bool:
    """Whether these are the settings of an evaluation that training goes on beside, also if it has no room."""
    return config.in_evaluation and config.evaluates_beside_training


def fitting(asked: Iterable[Demand], nodes: Iterable[Mapping[str, float]]) -> dict[str, int]:
    """How many processes of each demand have room on nodes with these resources and labels, by `count_key`.

    Rollout workers come last: training goes on with fewer of them, and with fewer of nothing else. Each is where others
    are the least likely to find room: outside the pools that take workers and the head, and on the smallest nodes.
    """
    free = [dict(node) for node in nodes]
    counts: dict[str, int] = {}
    for demand in sorted(asked, key=lambda one: one.count_key == ROLLOUT_WORKERS):
        placed = 0
        for node in sorted(free, key=_useful_to_others):
            if WORKERS_LABEL in node or not demand.in_pools:
                while placed < demand.count and _take(node, demand.bundle):
                    placed += 1
        counts[demand.count_key] = placed
    return counts


def _useful_to_others(node: Bundle) -> tuple[bool, bool, float, float]:
    is_head = ELASTIC in node
    return WORKERS_LABEL in node or is_head, is_head, node.get("GPU", 0.0), node.get("CPU", 0.0)


def _take(node: Bundle, bundle: Bundle) -> bool:
    """Take `bundle` out of a node; returns whether it has room for it."""
    has_room = all(node.get(name, 0.0) >= amount - 1e-9 for name, amount in bundle.items())
    if has_room:
        for name, amount in bundle.items():
            node[name] -= amount
    return has_room


def missing(asked: Sequence[Demand], available: Mapping[str, float]) -> Iterator[str]:
    """The arithmetic of every resource of which less is there than asked for."""
    for resource in dict.fromkeys(name for demand in asked for name in demand.bundle):
        terms = [demand for demand in asked if resource in demand.bundle]
        total = sum(demand.count * demand.bundle[resource] for demand in terms)
        there = available.get(resource, 0.0)
        if total > there + 1e-6:
            name = f"{resource}s" if resource in ("CPU", "GPU") else resource
            sum_of = " + ".join(demand.term(resource) for demand in terms)
            yield f"{sum_of} = {total:g} {name}, the cluster has {there:g}"


def check_resources(config: AlgorithmConfig, *, with_driver: bool = False) -> None:
    """Compare what the settings ask for with the whole cluster.

    Raises ResourceError with the arithmetic of what is missing; an elastic cluster was checked before it was started.
    """
    if is_elastic():
        return
    asked = demands(config, with_driver=with_driver)
    if problems := list(missing(asked, _cluster())):
        keys = dict.fromkeys(demand.count_key for demand in asked if demand.count_key != "driver")
        more_cpus = " --ray-num-cpus lets a local Ray count on more CPUs than there are."
        raise ResourceError(
            f"{'; '.join(problems)}. Lower {' or '.join(keys)}, let each process reserve less (fractions share a "
            f"CPU or GPU), or add nodes.{more_cpus if any('CPUs' in problem for problem in problems) else ''}"
        )


class ElasticPlacement:
    """No room is reserved: each process starts when a node of a pool has room for it.

    So training goes on with fewer processes after a node is lost, and the count comes back with the node. Meanwhile the
    head takes none of them in, unless it has to: they would stay beside the driver, or be killed together with it where
    they were lost for their memory.
    """

    def __init__(self, config: AlgorithmConfig) -> None:
        """For the rollout workers, or evaluation workers, of these settings."""
        self._bundle, self._asked = worker_bundle(config), demands(config)

    def options(self, index: int) -> dict[str, Any]:
        """Ray's options of an actor."""
        some: Any = Exists()  # type: ignore[no-untyped-call]
        of_pool: Any = In(OF_POOL)  # type: ignore[no-untyped-call]
        place = NodeLabelSchedulingStrategy({WORKERS_LABEL: some}, soft={WORKERS_LABEL: of_pool})
        return actor_options(self._bundle, place)

    def room(self, count: int) -> int:
        """How many of `count` rollout workers have room now beside evaluation workers and learners.

        0 if no node takes workers, else at least 1: by Ray's own count it may have room.
        """
        nodes = _nodes()
        asked = [replace(one, count=count) if one.count_key == ROLLOUT_WORKERS else one for one in self._asked]
        if not any(WORKERS_LABEL in node for node in nodes):
            return 0
        return max(fitting(asked, nodes).get(ROLLOUT_WORKERS, count), 1)

    def remove(self) -> None:
        """Nothing was reserved."""


def _nodes() -> list[Bundle]:
    """What each node of the cluster has, with WORKERS_LABEL if it takes workers."""
    alive = [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
    label = {WORKERS_LABEL: 1.0}
    return [node["Resources"] | (label if WORKERS_LABEL in node["Labels"] else {}) for node in alive]


def lacking_room(config: AlgorithmConfig, *, has_learners: bool = True) -> Iterator[str]:
    """Why the nodes that are there do not do for training to go on, as a person would read it; nothing if they do.

    Learners that are there already, by `has_learners`, are not counted: where Ray has placed them, in pools or in the
    head, is not known.
    """
    nodes, asked = _nodes(), [demand for demand in demands(config) if demand.in_pools or not has_learners]
    if config.num_rollout_workers and not any(WORKERS_LABEL in node for node in nodes):
        yield "no pod that takes rollout workers has joined: scale a pool up"
    elif not have_room_to_go_on(asked, nodes):
        each = " and ".join(f"{one.to_go_on} of {one.count_key}={one.count} ({one.needs})" for one in asked)
        yield f"the pods that have joined have no room for {each} at once: scale a pool up"


def have_room_to_begin(asked: Iterable[Demand], nodes: Iterable[Mapping[str, float]]) -> bool:
    """Whether these nodes do for a job to begin."""
    return _have_room([replace(demand, count=demand.to_begin) for demand in asked], nodes)


def have_room_to_go_on(asked: Iterable[Demand], nodes: Iterable[Mapping[str, float]]) -> bool:
    """Whether these nodes do for training to go on, with fewer workers than are asked for."""
    return _have_room([replace(demand, count=demand.to_go_on) for demand in asked], nodes)


def _have_room(asked: Collection[Demand], nodes: Iterable[Mapping[str, float]]) -> bool:
    return fitting(asked, nodes) == {demand.count_key: demand.count for demand in asked}


class TrialPlacement:
    """The room of some processes in a placement group; bundle i belongs to the actor with index i + 1.

    In a trial, which is this process, it is the group that the sweep reserved for it: see `trial_bundles`.
    """

    def __init__(self, bundles: Sequence[Bundle], group: Any, first: int = 0) -> None:
        """`first` is the place of these bundles among those of the `group`."""
        self._bundles, self._group, self._first = bundles, group, first

    def options(self, index: int) -> dict[str, Any]:
        """Ray's options of the actor with this index (from 1)."""
        place = PlacementGroupSchedulingStrategy(self._group, self._first + index - 1)
        return actor_options(self._bundles[index - 1], place)

    def remove(self) -> None:
        """The sweep gives the room back when the trial has ended."""


class Placement(TrialPlacement):
    """Room for one process per bundle, reserved together.

    When a node is lost, Ray reserves its bundles again as soon as there is room.
    """

    def __init__(
        self,
        bundles: Sequence[Bundle],
        strategy: str,
        wait_s: float | None,
        deadline: Deadline | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """`strategy`: PACK, SPREAD, STRICT_PACK or STRICT_SPREAD. Raises ResourceError after `wait_s` seconds.

        Without `wait_s` the processes wait for the room. `labels`: which nodes may have them, as Ray's label selectors.
        """
        reserved = [bundle or EMPTY_BUNDLE for bundle in bundles]
        selectors = [dict(labels) for _ in bundles] if labels else None
        super().__init__(bundles, placement_group(reserved, strategy=strategy, bundle_label_selector=selectors))
        self._deadline = deadline or Deadline()
        try:
            if wait_s is not None:
                self._await_room(strategy, wait_s)
        except BaseException:
            self.remove()
            raise

    def _await_room(self, strategy: str, wait_s: float) -> None:
        what = f"{len(self._bundles)} processes of {self._bundles[0] or 'no resources'} each, placed {strategy}"
        started, said = time.monotonic(), False
        while not self._group.wait(min(wait_s, SLICE_S)):
            self._deadline.end_if_over()
            waited = time.monotonic() - started
            if waited >= wait_s:
                raise ResourceError(
                    f"no room within {wait_s:g} s for {what}{self._have_room()}. Free in the cluster: {_free()}. "
                    "Add nodes, ask for less, or set placement_strategy='PACK'."
                )
            if waited >= SAY_AFTER_S and not said:
                limit = "" if math.isinf(wait_s) else f" up to {wait_s:g} s"
                log.warning("waiting%s for room for %s%s; free: %s", limit, what, self._have_room(), _free())
                said = True

    def _have_room(self) -> str:
        """How many of the processes would have room now, where that are not all."""
        nodes = available_resources_per_node().values()  # type: ignore[no-untyped-call]
        placed = _fitting_alike(self._bundles, nodes)
        return f", of which {placed} would have some" if placed < len(self._bundles) else ""

    def remove(self) -> None:
        """Give the room back."""
        if ray.is_initialized():
            remove_placement_group(self._group)


def in_a_trial() -> bool:
    """Whether this process is a trial of a sweep, with the room of its workers and learners."""
    return get_current_placement_group() is not None


def reserve(
    config: AlgorithmConfig,
    bundles: Sequence[Bundle],
    first: int,
    deadline: Deadline | None = None,
    *,
    for_learners: bool = False,
) -> TrialPlacement:
    """Reserve room for these processes; in a trial it is there already, from the place `first` on.

    `for_learners`: outside the pools that take workers, if there are pods enough for them alone.
    """
    if (trial := get_current_placement_group()) is not None:
        return TrialPlacement(bundles, trial, first)
    strategy, wait_s = config.placement_strategy, config.worker_restore_timeout_s
    labels: dict[str, str] = {}
    if is_elastic():
        if not strategy.startswith("STRICT"):  # all pods together have room: those that lack it will come
            wait_s = math.inf
        apart = [node for node in _nodes() if WORKERS_LABEL not in node and ELASTIC not in node]
        if for_learners and _fitting_alike(bundles, apart) == len(bundles):
            labels[WORKERS_LABEL] = f"!{OF_POOL}"
    return Placement(bundles, strategy, None if is_beside_training(config) else wait_s, deadline, labels)


def _fitting_alike(bundles: Sequence[Bundle], nodes: Iterable[Mapping[str, float]]) -> int:
    """How many of these equal processes have room on nodes with these resources."""
    return fitting([Demand(len(bundles), "", bundles[0], {})], nodes)[""]


def actor_options(bundle: Bundle, strategy: Any) -> dict[str, Any]:
    """Ray's options of an actor that reserves `bundle`."""
    rest = dict(bundle)
    return {
        "num_cpus": rest.pop("CPU", 0),
        "num_gpus": rest.pop("GPU", 0),
        "resources": rest,
        "scheduling_strategy": strategy,
    }
