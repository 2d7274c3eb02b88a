"""Whether a job's processes fit into its pods when all of them are there, before anything waits for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reef.distributed.node_settings import ELASTIC, POOL, WORKERS_LABEL
from reef.errors import ResourceError

if TYPE_CHECKING:
    from reef.api import JobSpec, NodePool
    from reef.config import AlgorithmConfig
    from reef.distributed.resources import Demand
    from reef.sweep.plan import Plan

Count = Callable[["NodePool", int], int]
Offer = dict[str, float]  # of one pod: resource name to amount, and WORKERS_LABEL if it takes workers


@dataclass(frozen=True)
class Pods:
    """The head's pod and those of the pools, as many as the document wants; a pod's part of a CPU counts as one."""

    spec: JobSpec
    head_cpus: float
    head_gpus: float

    @classmethod
    def wanted_by(cls, spec: JobSpec) -> Pods:
        """With a head as large as the document says."""
        return cls(spec, float(math.ceil(spec.head.cpus)), float(spec.head.gpus))

    def offers(self, count: Count = lambda pool, wanted: wanted, *, in_head: bool = False) -> list[Offer]:
        """What every pod offers, the head last.

        Args:
            count: how many pods of a pool of which so many are wanted.
            in_head: the head takes rollout and evaluation workers.
        """
        wanted, takes_workers = self.spec.pool_replicas, {WORKERS_LABEL: 1.0}
        offers: list[Offer] = []
        for pool in self.spec.workers:
            offer = {"CPU": float(math.ceil(pool.cpus)), "GPU": float(pool.gpus), f"{POOL}{pool.name}": 1.0}
            offer |= takes_workers if pool.rollout_workers else {}
            offers += [dict(offer) for _ in range(count(pool, wanted[pool.name]))]
        head = {"CPU": self.head_cpus, "GPU": self.head_gpus, ELASTIC: 1.0}
        return [*offers, head | takes_workers if in_head else head]

    def total(self, resource: str) -> float:
        """What all of them offer together."""
        return sum(offer[resource] for offer in self.offers())

    def head_takes_workers(self, config: AlgorithmConfig) -> bool:
        """Whether rollout and evaluation workers may be in the head.

        They may if nobody else takes them: training goes on without pods, all pools are for learners, or the workers do
        not wait for room. And if it is only by the head's help that training begins with all pods, or goes on with the
        fewest: that those have room for a rollout worker and an evaluation worker beside all learners.
        """
        from reef.distributed.resources import demands, have_room_to_begin, have_room_to_go_on, may_wait_for_room

        alone, helped = self.offers(), self.offers(in_head=True)
        fewest, fewest_helped = self.offers(fewest_to_go_on), self.offers(fewest_to_go_on, in_head=True)
        if not (any(WORKERS_LABEL in offer for offer in fewest) and may_wait_for_room(config)):
            return True
        asked = demands(config)
        begins_by_help = have_room_to_begin(asked, helped) and not have_room_to_begin(asked, alone)
        goes_on_by_help = have_room_to_go_on(asked, fewest_helped) and not have_room_to_go_on(asked, fewest)
        return begins_by_help or goes_on_by_help

    def rollout_workers_that_fit(self, config: AlgorithmConfig, *, on_one_machine: bool = False) -> int:
        """How many of `num_rollout_workers` have room beside all evaluation workers and learners.

        `on_one_machine`: a local Ray stands for all pods, and the head's part of it takes workers.

        Raises:
            ResourceError: not even one has, or an evaluation worker or a learner has none. Where pools were scaled down
                after the document was written, as many pods count as it says: room may come again.
        """
        from reef.distributed.resources import ROLLOUT_WORKERS, may_wait_for_room

        in_head = on_one_machine or self.head_takes_workers(config)
        now, most = self.offers(in_head=in_head), self.offers(as_written, in_head=in_head)
        for demand, count in placed(config, most if may_wait_for_room(config) else now):
            key = demand.count_key
            if count < demand.to_begin:
                raise ResourceError(
                    f"{key}={demand.count}: the job's pods have room for {count} of them, as each needs "
                    f"{demand.needs}. Lower {key}, let each process reserve less, or give spec.workers more or larger "
                    "pods."
                )
        counts = {demand.count_key: count for demand, count in placed(config, now)}
        return counts.get(ROLLOUT_WORKERS, config.num_rollout_workers)  # those that reserve nothing always fit

    def check_trials(self, plan: Plan) -> None:
        """Raise ResourceError for a trial of a sweep without room in all pods together: it would wait for ever."""
        for trial in plan.trials:
            for demand, count in placed(plan.config(trial), self.offers(), with_driver=True):
                if count < demand.count:
                    key = demand.count_key
                    what = "the process of a trial" if key == "driver" else f"{key}={demand.count} of a trial"
                    raise ResourceError(
                        f"{what}: the job's pods have room for {count}, as each needs {demand.needs}. Let it reserve "
                        "less, or give spec.workers more or larger pods."
                    )


def fewest_to_go_on(pool: NodePool, wanted: int) -> int:
    """How many pods of a pool training needs to go on."""
    return pool.least(wanted)


def as_written(pool: NodePool, wanted: int) -> int:
    """How many pods of a pool the document wants, or wanted before `spec.replicas` scaled it down."""
    return max(pool.replicas, wanted)


def placed(config: AlgorithmConfig, offers: list[Offer], *, with_driver: bool = False) -> Iterator[tuple[Demand, int]]:
    """What the settings ask for, each with the number of processes that have room."""
    from reef.distributed.resources import demands, fitting

    asked = {demand.count_key: demand for demand in demands(config, with_driver=with_driver)}
    yield from ((asked[key], count) for key, count in fitting(asked.values(), offers).items())
