"""Whether a job's processes fit into its pods when all of them are there, before anything waits for them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from reef.api.pods import HEAD_NAME
from reef.distributed.node_settings import POOL
from reef.errors import ResourceError

if TYPE_CHECKING:
    from reef.api import JobSpec
    from reef.config import AlgorithmConfig

Room = dict[str, float]  # resource name to what is free in one pod


def pods_of(spec: JobSpec, head_cpus: float, head_gpus: float) -> list[Room]:
    """The resources of every pod of the job, those of pools first, as processes are rather placed there."""
    wanted = spec.pool_replicas
    rooms: list[Room] = []
    for pool in spec.workers:
        offer = {"CPU": float(math.ceil(pool.cpus)), "GPU": float(pool.gpus), f"{POOL}{pool.name}": 1.0}
        rooms += [dict(offer) for _ in range(wanted[pool.name])]
    return [*rooms, {"CPU": head_cpus, "GPU": head_gpus, f"{POOL}{HEAD_NAME}": 1.0}]


def rollout_workers_that_fit(config: AlgorithmConfig, rooms: list[Room]) -> int:
    """How many of `num_rollout_workers` have room beside all evaluation workers and learners.

    Raises:
        ResourceError: not even one has, or an evaluation worker or a learner has none.
    """
    from reef.distributed.resources import ROLLOUT_WORKERS, demands, fitting

    asked = {demand.count_key: demand for demand in demands(config)}
    counts = fitting(asked.values(), rooms)
    for key, count in counts.items():
        demand = asked[key]
        if count < (1 if key == ROLLOUT_WORKERS else demand.count):
            needs = ", ".join(f"{demand.keys[name]} {amount:g}" for name, amount in demand.bundle.items())
            raise ResourceError(
                f"{key}={demand.count}: the job's pods have room for {count} of them, as each needs {needs}. "
                f"Lower {key}, let each process reserve less, or give spec.workers more or larger pods."
            )
    return counts.get(ROLLOUT_WORKERS, config.num_rollout_workers)  # those that reserve nothing always fit


def check_trial(config: AlgorithmConfig, rooms: list[Room]) -> None:
    """Raise ResourceError when the processes of one trial of a sweep do not fit into all pods together."""
    from reef.distributed.resources import demands, fitting

    asked = {demand.count_key: demand for demand in demands(config, with_driver=True)}
    for key, count in fitting(asked.values(), rooms).items():
        demand = asked[key]
        if count < demand.count:
            needs = ", ".join(f"{demand.keys[name]} {amount:g}" for name, amount in demand.bundle.items())
            what = "the process of a trial" if key == "driver" else f"{key}={demand.count} of a trial"
            raise ResourceError(
                f"{what}: the job's pods have room for {count}, as each needs {needs}. Let it reserve less, or give "
                "spec.workers more or larger pods."
            )
