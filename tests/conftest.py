"""What holds for every test: few threads, the same random numbers, and nothing written outside temporary folders."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from forked_workers import forking_python, raylets_with
from s3_server import S3

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

FAKES = str(Path(__file__).parent / "trainer" / "distributed")

# Before numpy and torch are imported: tests and Ray's processes share few cores.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
# Ray would have its workers wait for whatever else runs here, such as the tests of another process.
os.environ.setdefault("RAY_worker_niceness", "0")


@pytest.hookimpl(tryfirst=True)  # before xdist gives out what belongs together
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `-n`, tests of a shared Ray have two processes, by module, and those that start a Ray of their own another.

    More Rays at once would be too many for few cores. As they take longest, they come first.
    """
    if not hasattr(config, "workerinput"):
        return
    shared = [item for item in items if "ray_cluster" in getattr(item, "fixturenames", ())]
    halves = {path: f"shared-ray-{place % 2}" for place, path in enumerate(dict.fromkeys(item.path for item in shared))}
    groups: dict[str, list[pytest.Item]] = {"shared-ray-0": [], "shared-ray-1": [], "own-ray": [], "": []}
    for item in items:
        shares = "ray_cluster" in getattr(item, "fixturenames", ())
        group = (halves[item.path] if shares else "own-ray") if item.get_closest_marker("ray") else ""
        groups[group].append(item)
        if group:
            item.add_marker(pytest.mark.xdist_group(group))
    items[:] = [item for group in groups.values() for item in group]


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Say where pytest-xdist does not know these groups, as with a pytest that is too new for it."""
    if session.testsfailed:  # at collection, which is what is to be said
        return
    if hasattr(session.config, "workerinput") and session.config.getvalue("loadgroup"):
        apart = [item.nodeid for item in session.items if item.get_closest_marker("ray") and "@" not in item.nodeid]
        assert not apart, f"pytest-xdist does not group {apart[0]}: install the versions of constraints.txt"


@pytest.fixture(scope="session", autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Results go to the home folder by default: give the tests one of their own."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        yield home


@pytest.fixture(autouse=True)
def _same_chance() -> None:
    """Weights and actions come from the process's generators: no test finds them as an earlier one left them."""
    random.seed(0)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(0)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


@pytest.fixture
def s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    """An S3 server with the bucket `bucket`, which this process has the credentials of."""
    server = S3(tmp_path / "s3")
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def ray_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A Python below which the workers of Ray are forks of a process that has imported PyTorch."""
    with forking_python(tmp_path_factory.mktemp("ray")) as python:
        yield python


@pytest.fixture(scope="session")
def ray_cluster(ray_python: Path) -> Iterator[Cluster]:
    """One Ray for all tests of a process: a head of four logical CPUs; tests may add nodes and take them away.

    It is a `ray.cluster_utils.Cluster` that this process has joined; the fakes of Ray's tests can be imported there.
    """
    import ray
    import torch
    from ray._private import ray_constants
    from ray.cluster_utils import Cluster

    from reef.distributed.start import NODE_CHECKS, start

    assert not ray.is_initialized(), "an earlier test started a Ray of its own: have it take the fixture ray_cluster"
    ray_constants.ENABLE_RAY_CLUSTER = False  # loopback only, as `start` does for a Ray of its own
    sys.path.insert(0, FAKES)
    os.environ["PYTHONPATH"] = os.pathsep.join([FAKES, *filter(None, [os.environ.get("PYTHONPATH")])])
    head = {
        "num_cpus": 4,
        "num_gpus": torch.cuda.device_count(),
        "object_store_memory": 100 * 1024 * 1024,
        "include_dashboard": False,
        "include_log_monitor": False,  # it would read the logs of all workers again and again, for nobody
        "_system_config": NODE_CHECKS,
    }
    with raylets_with(ray_python):
        cluster = Cluster(initialize_head=True, head_node_args=head)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "executable", str(ray_python))  # whose path needs no quotes in Ray's commands
            session = start(cluster.address)
        yield cluster
        session.stop()
    cluster.shutdown()
