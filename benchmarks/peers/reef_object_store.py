"""Bytes that Reef moves through Ray's object store for one environment step: what a worker sends and receives."""

from __future__ import annotations

import ray
from ray._private.worker import global_worker

from benchmarks.peers.protocol import answer, arguments
from benchmarks.peers.reef import configuration


def stored_bytes(value: object) -> int:
    """Return the size of `value` in the object store."""
    return int(global_worker.get_serialization_context().serialize(value).total_bytes)


if __name__ == "__main__":
    ARGS = arguments()
    with configuration({**ARGS, "workers": 0}).build() as ALGORITHM:
        WORKER = ALGORITHM.workers.local_worker()
        SAMPLE = WORKER.sample()
        WEIGHTS = WORKER.get_weights()
    ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    ARRAYS = sum(array.nbytes for array in (SAMPLE.rollouts[policy].obs for policy in SAMPLE.rollouts))
    RESULT = {
        "steps": SAMPLE.env_steps,
        "sample_bytes": stored_bytes(SAMPLE),
        "observation_bytes": ARRAYS,
        "weights_bytes": stored_bytes(WEIGHTS),
    }
    ray.shutdown()
    answer(RESULT, "reef", "ray")
