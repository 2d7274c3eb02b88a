"""One Ray for all tests of the trainer: a head of four logical CPUs; tests may add nodes and take them away."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

FAKES = str(Path(__file__).parent / "distributed")


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[Cluster]:
    """A `ray.cluster_utils.Cluster` that this process has joined; the fakes of Ray's tests can be imported there."""
    import torch
    from ray._private import ray_constants
    from ray.cluster_utils import Cluster

    from reef.distributed.start import NODE_CHECKS, start

    ray_constants.ENABLE_RAY_CLUSTER = False  # loopback only, as `start` does for a Ray of its own
    sys.path.insert(0, FAKES)
    os.environ["PYTHONPATH"] = os.pathsep.join([FAKES, *filter(None, [os.environ.get("PYTHONPATH")])])
    store = 100 * 1024 * 1024
    cluster = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 4,
            "num_gpus": torch.cuda.device_count(),
            "object_store_memory": store,
            "_system_config": NODE_CHECKS,
        },
    )
    session = start(cluster.address)
    yield cluster
    session.stop()
    cluster.shutdown()
