"""One real Kubernetes for all tests of this folder: the one that $KUBECONFIG names, or one of their own; see kube/."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from installation import Installation
from kube.__main__ import name_of_cluster
from kube.cluster import Cluster, OwnCluster, given_cluster, used_cluster
from kube.progress import ClusterError, NoClusterError, say, wait_until

TEST_S = 600  # for a test that names no other limit
# Files that take minutes, the longest first: with one of them as the last, one process would wait for the other.
LONGEST = (
    "lifecycle",
    "training",
    "operator_faults",
    "wrong_jobs",
    "chart",
    "images",
    "node",
    "external",
    "sweep",
    "object_store",
    "monitoring",
)


@pytest.hookimpl(tryfirst=True)  # before -m looks at the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test of this folder that uses the cluster is marked so, and its limit is for itself; long ones come first.

    Programs and images are made when the first test asks for them, and have limits of their own.
    """
    places = {f"test_{name}": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)) if _is_here(item) else len(places))
    for item in items:
        if _is_here(item) and "cluster" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.cluster)
            limit = item.get_closest_marker("timeout")
            item.add_marker(pytest.mark.timeout(limit.args[0] if limit else TEST_S, func_only=True))


def _is_here(item: pytest.Item) -> bool:
    return Path(__file__).parent in item.path.parents


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows the warnings of its namespace beside its own words."""
    report = yield
    given = getattr(item, "funcargs", {})
    if report.when == "call" and report.failed and "cluster" in given:
        for namespace in {given[name] for name in ("namespace", "crowd") if name in given}:
            report.sections.append((f"Warnings in {namespace}", given["cluster"].warnings(namespace)))
    return report


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster that is ready; tests that need one are skipped where none can be had, and the reason is printed.

    $REEF_REQUIRE_CLUSTER=1 makes that an error.
    """
    given = given_cluster()
    if given is not None:
        yield given
        return
    shown = request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled
    with contextlib.ExitStack() as stack:
        try:
            with shown():  # it takes minutes the first time: say what is being done
                own = stack.enter_context(used_cluster(name_of_own(request.config)))
        except NoClusterError as reason:
            if os.environ.get("REEF_REQUIRE_CLUSTER"):
                raise
            with shown():
                say(f"Tests with a cluster are skipped, and KUBECONFIG names no other: {reason}")
            pytest.skip(str(reason))
        yield own


def name_of_own(config: pytest.Config) -> str:
    """With `-n`, every process but the first has a cluster beside the one that all would use."""
    process = getattr(config, "workerinput", {"workerid": "gw0"})["workerid"]
    return name_of_cluster() if process == "gw0" else f"{name_of_cluster()}-{process}"


@pytest.fixture(scope="session")
def own_cluster(cluster: Cluster) -> OwnCluster:
    """The same, if its parts can be stopped and started; tests that need this are skipped on a given cluster."""
    if not isinstance(cluster, OwnCluster):
        pytest.skip("this cluster was given by KUBECONFIG: its parts are not ours to stop")
    cluster.base_image()  # here, where no test's limit holds
    return cluster


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace of the test's own."""
    with cluster.namespace() as name:
        yield name


@pytest.fixture(scope="session")
def reef(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[Installation]:
    """Reef, installed by its chart for all namespaces with images of this tree."""
    shown = request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled
    installation = Installation(cluster)
    with shown():
        installation.install()
    yield installation
    installation.uninstall()
    mine = ("-l", f"app.kubernetes.io/instance={installation.name}", "-o", "name")
    left = cluster.kubectl("get", "clusterroles,clusterrolebindings", *mine)
    assert left == "", "the release leaves rights behind"


@pytest.fixture
def without_operator(reef: Installation, cluster: Cluster) -> Iterator[Any]:
    """Stops the operator when called; it is back afterwards."""

    def scale(replicas: int) -> None:
        cluster.kubectl("scale", "deployment", reef.deployment, "-n", reef.namespace, f"--replicas={replicas}")

    def stop() -> None:
        scale(0)
        pods = ("get", "pods", "-n", reef.namespace, "-l", "app.kubernetes.io/component=operator", "-o", "name")
        wait_until("the operator's pod to be gone", lambda: not cluster.kubectl(*pods).strip(), timeout_s=120)

    yield stop
    scale(1)
    reef.await_operator()


@pytest.fixture
def volumes(own_cluster: OwnCluster) -> Iterator[list[str]]:
    """Names of PersistentVolumes that are removed with their folders, after the namespaces that use them."""
    made: list[str] = []
    yield made
    for name in made:
        own_cluster.kubectl("delete", "persistentvolume", name, "--wait=false")
        with contextlib.suppress(ClusterError):  # a pod that is about to end writes there
            own_cluster.machine.run(["rm", "-rf", f"/run/volumes/{name}"])


@pytest.fixture
def volume(own_cluster: OwnCluster, volumes: list[str], namespace: str) -> str:
    """A PersistentVolumeClaim in the test's namespace, on a folder of the node."""
    folder = f"/run/volumes/{namespace}"
    volumes.append(namespace)
    own_cluster.machine.run(["mkdir", "-p", "-m", "777", folder])
    size = {"storage": "1Gi"}
    own_cluster.apply(
        [
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": namespace},
                "spec": {
                    "capacity": size,
                    "accessModes": ["ReadWriteMany"],
                    "hostPath": {"path": folder},
                    "persistentVolumeReclaimPolicy": "Retain",
                    "storageClassName": "test",
                },
            },
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": "results"},
                "spec": {
                    "accessModes": ["ReadWriteMany"],
                    "resources": {"requests": size},
                    "storageClassName": "test",
                    "volumeName": namespace,
                },
            },
        ],
        namespace=namespace,
    )
    return "results"
