"""Whether a job's processes fit into its pods when all of them are there, before anything waits for them."""

from __future__ import annotations

import math
from collections.abc import Mapping
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
    from reef.distributed.resources import demands

    fitting = 0
    for demand in sorted(demands(config), key=lambda one: one.count_key == "num_rollout_workers"):
        placed = 0
        while placed < demand.count and take(rooms, demand.bundle):
            placed += 1
        rollout = demand.count_key == "num_rollout_workers"
        if placed < (1 if rollout else demand.count):
            needs = ", ".join(f"{demand.keys[name]} {amount:g}" for name, amount in demand.bundle.items())
            raise ResourceError(
                f"{demand.count_key}={demand.count}: the job's pods have room for {placed} of them, as each needs "
                f"{needs}. Lower {demand.count_key}, let each process reserve less, or give spec.workers more or "
                "larger pods."
            )
        fitting = placed if rollout else fitting
    if config.num_rollout_workers and not any(d.count_key == "num_rollout_workers" for d in demands(config)):
        return config.num_rollout_workers  # they reserve nothing
    return fitting


def take(rooms: list[Room], bundle: Mapping[str, float]) -> bool:
    """Take `bundle` out of the first pod that has room for it."""
    for room in rooms:
        if all(room.get(name, 0.0) >= amount - 1e-9 for name, amount in bundle.items()):
            for name, amount in bundle.items():
                room[name] -= amount
            return True
    return False
