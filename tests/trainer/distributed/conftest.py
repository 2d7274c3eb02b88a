"""One Ray for all tests of this folder: a head of four logical CPUs, to which tests may add nodes and take them away."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from reef.distributed.start import LOOPBACK, NODE_CHECKS, start

HERE = str(Path(__file__).parent)


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator:
    """A `ray.cluster_utils.Cluster` that this process has joined; the folder's fakes can be imported in its actors."""
    os.environ.update(LOOPBACK)  # before Ray is imported
    from ray.cluster_utils import Cluster

    sys.path.insert(0, HERE)
    os.environ["PYTHONPATH"] = os.pathsep.join([HERE, *filter(None, [os.environ.get("PYTHONPATH")])])
    store = 100 * 1024 * 1024
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 4, "object_store_memory": store, "_system_config": NODE_CHECKS},
    )
    session = start(cluster.address)
    yield cluster
    session.stop()
    cluster.shutdown()
