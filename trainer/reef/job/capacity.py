"""Whether a job's processes fit into its pods when all of them are there, before anything waits for them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reef.distributed.node_settings import ELASTIC, POOL, WORKERS_LABEL
from reef.errors import ResourceError

if TYPE_CHECKING:
    from reef.api import JobSpec
    from reef.config import AlgorithmConfig
    from reef.distributed.resources import Demand
    from reef.sweep.plan import Plan

Room = dict[str, float]  # resource name to what is free in one pod; with WORKERS_LABEL if it takes workers


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

    def rooms(self, *, fewest: bool = False, in_head: bool = False) -> list[Room]:
        """What every pod offers, the head last.

        Args:
            fewest: with no more pods than training needs to go on.
            in_head: the head takes rollout and evaluation workers.
        """
        wanted = self.spec.pool_replicas
        rooms: list[Room] = []
        for pool in self.spec.workers:
            count = min(pool.minimum, wanted[pool.name]) if fewest else wanted[pool.name]
            offer = {"CPU": float(math.ceil(pool.cpus)), "GPU": float(pool.gpus), f"{POOL}{pool.name}": 1.0}
            rooms += [offer | {WORKERS_LABEL: 1.0} for _ in range(count)]
        head = {"CPU": self.head_cpus, "GPU": self.head_gpus, ELASTIC: 1.0}
        return [*rooms, head | {WORKERS_LABEL: 1.0} if in_head else head]

    def total(self, resource: str) -> float:
        """What all of them offer together."""
        return sum(room[resource] for room in self.rooms())

    def head_takes_workers(self, config: AlgorithmConfig) -> bool:
        """Whether rollout and evaluation workers may be in the head.

        They may if nobody else takes them: training goes on without pods, all pools are for learners, or the workers do
        not wait for room. And if it goes on with the fewest pods only by the head's help, as those have no room for a
        rollout worker and an evaluation worker beside all learners.
        """
        from reef.distributed.resources import demands, have_room_to_go_on, may_wait_for_room

        alone, helped = self.rooms(fewest=True), self.rooms(fewest=True, in_head=True)
        of_workers = any(pool.rollout_workers for pool in self.spec.workers)
        if not (alone[:-1] and of_workers and may_wait_for_room(config)):
            return True
        asked = demands(config)
        return have_room_to_go_on(asked, helped) and not have_room_to_go_on(asked, alone)

    def rollout_workers_that_fit(self, config: AlgorithmConfig, *, on_one_machine: bool = False) -> int:
        """How many of `num_rollout_workers` have room beside all evaluation workers and learners.

        `on_one_machine`: all pods are one node of a local Ray, which takes workers.

        Raises:
            ResourceError: not even one has, or an evaluation worker or a learner has none.
        """
        from reef.distributed.resources import ROLLOUT_WORKERS

        fitting = config.num_rollout_workers  # those that reserve nothing always fit
        in_head = on_one_machine or self.head_takes_workers(config)
        for demand, count in placed(config, self.rooms(in_head=in_head)):
            key = demand.count_key
            if count < demand.to_begin:
                raise ResourceError(
                    f"{key}={demand.count}: the job's pods have room for {count} of them, as each needs "
                    f"{demand.needs}. Lower {key}, let each process reserve less, or give spec.workers more or larger "
                    "pods."
                )
            fitting = count if key == ROLLOUT_WORKERS else fitting
        return fitting

    def check_trials(self, plan: Plan) -> None:
        """Raise ResourceError for a trial of a sweep without room in all pods together: it would wait for ever."""
        for trial in plan.trials:
            for demand, count in placed(plan.config(trial), self.rooms(), with_driver=True):
                if count < demand.count:
                    key = demand.count_key
                    what = "the process of a trial" if key == "driver" else f"{key}={demand.count} of a trial"
                    raise ResourceError(
                        f"{what}: the job's pods have room for {count}, as each needs {demand.needs}. Let it reserve "
                        "less, or give spec.workers more or larger pods."
                    )


def placed(config: AlgorithmConfig, rooms: list[Room], *, with_driver: bool = False) -> Iterator[tuple[Demand, int]]:
    """What the settings ask for, each with the number of processes that have room."""
    from reef.distributed.resources import demands, fitting

    asked = {demand.count_key: demand for demand in demands(config, with_driver=with_driver)}
    yield from ((asked[key], count) for key, count in fitting(asked.values(), rooms).items())
