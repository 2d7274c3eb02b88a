"""One Ray for all tests of this folder: a head of four logical CPUs; tests may add nodes and take them away."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from ray._private import ray_constants
from ray.cluster_utils import Cluster

from reef.distributed.start import NODE_CHECKS, start

HERE = str(Path(__file__).parent)


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[Cluster]:
    """A `ray.cluster_utils.Cluster` that this process has joined; the folder's fakes can be imported in its actors."""
    ray_constants.ENABLE_RAY_CLUSTER = False  # loopback only, as `start` does for a Ray of its own
    sys.path.insert(0, HERE)
    os.environ["PYTHONPATH"] = os.pathsep.join([HERE, *filter(None, [os.environ.get("PYTHONPATH")])])
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
