"""Whether a job's processes fit into its pods when all of them are there, before anything waits for them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from reef.distributed.node_settings import ELASTIC, POOL, WORKERS_LABEL
from reef.errors import ResourceError

if TYPE_CHECKING:
    from reef.api import JobSpec
    from reef.config import AlgorithmConfig
    from reef.distributed.resources import Demand
    from reef.sweep.plan import Plan

Room = dict[str, float]  # resource name to what is free in one pod; WORKERS_LABEL where it takes workers


def pods_of(spec: JobSpec, head_cpus: float, head_gpus: float) -> list[Room]:
    """The resources of every pod of the job, those of pools first, as processes are rather placed there."""
    wanted = spec.pool_replicas
    rooms: list[Room] = []
    for pool in spec.workers:
        offer = {"CPU": float(math.ceil(pool.cpus)), "GPU": float(pool.gpus), f"{POOL}{pool.name}": 1.0}
        rooms += [offer | {WORKERS_LABEL: 1.0} for _ in range(wanted[pool.name])]
    head = {"CPU": head_cpus, "GPU": head_gpus, ELASTIC: 1.0}
    return [*rooms, head | {WORKERS_LABEL: 1.0} if spec.head_takes_workers else head]


def rollout_workers_that_fit(config: AlgorithmConfig, rooms: list[Room]) -> int:
    """How many of `num_rollout_workers` have room beside all evaluation workers and learners.

    Raises:
        ResourceError: not even one has, or an evaluation worker or a learner has none.
    """
    from reef.distributed.resources import ROLLOUT_WORKERS

    fitting = config.num_rollout_workers  # those that reserve nothing always fit
    for demand, count in placed(config, rooms):
        key = demand.count_key
        if count < (1 if key == ROLLOUT_WORKERS else demand.count):
            without_head = demand.in_pools and any(WORKERS_LABEL not in room for room in rooms)
            places = "the pods of spec.workers" if without_head else "the job's pods"
            raise ResourceError(
                f"{key}={demand.count}: {places} have room for {count} of them, as each needs {demand.needs}. "
                f"Lower {key}, let each process reserve less, or give spec.workers more or larger pods."
            )
        fitting = count if key == ROLLOUT_WORKERS else fitting
    return fitting


def check_trials(plan: Plan, rooms: list[Room]) -> None:
    """Raise ResourceError for a trial of a sweep that has no room in all pods together, as it would wait for ever."""
    for trial in plan.trials:
        for demand, count in placed(plan.config(trial), rooms, with_driver=True):
            if count < demand.count:
                key = demand.count_key
                what = "the process of a trial" if key == "driver" else f"{key}={demand.count} of a trial"
                raise ResourceError(
                    f"{what}: the job's pods have room for {count}, as each needs {demand.needs}. Let it reserve less, "
                    "or give spec.workers more or larger pods."
                )


def placed(config: AlgorithmConfig, rooms: list[Room], *, with_driver: bool = False) -> Iterator[tuple[Demand, int]]:
    """What the settings ask for, each with the number of processes that have room."""
    from reef.distributed.resources import demands, fitting

    asked = {demand.count_key: demand for demand in demands(config, with_driver=with_driver)}
    yield from ((asked[key], count) for key, count in fitting(asked.values(), rooms).items())
