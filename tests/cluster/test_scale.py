"""Many jobs on nodes without kubelets: all their objects once, few writes, and nothing left; see benchmarks/scale."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator

import pytest
from benchmarks.scale.lags import Change, known, status_lags
from benchmarks.scale.load import Load, hollow_job
from benchmarks.scale.operator_process import OperatorProcess, answering_heads
from benchmarks.scale.watcher import CHILDREN, Watcher
from installation import Installation, process_of
from kube.cluster import OwnCluster
from kube.hollow import HollowNodes
from kube.progress import wait_until

pytestmark = pytest.mark.timeout(600)
MANY, FEW = 30, 5
# Every fact that comes alone is one status; those that come together are one. What a job of one worker can tell:
# taken up, head pod there, head placed, head ready, worker placed, worker ready, training, and a first progress.
STATUSES_TO_RUNNING = 8
STATUSES_OF_THE_END = 2  # that it ended; that its workers have gone
EVENTS = {"NotDurable": 1, "Provisioning": 1, "Running": 1, "Succeeded": 1}


@pytest.fixture
def nodes(own_cluster: OwnCluster) -> Iterator[HollowNodes]:
    with answering_heads(own_cluster, still=True), own_cluster.hollow_nodes(1) as nodes:
        yield nodes


@pytest.fixture
def watcher(own_cluster: OwnCluster, namespace: str) -> Iterator[Watcher]:
    with Watcher(own_cluster.api, namespace) as watcher:
        yield watcher


def load_of(
    jobs: int, reef: Installation, cluster: OwnCluster, namespace: str, nodes: HollowNodes, watcher: Watcher
) -> Load:
    pod = reef.pod()
    operator = OperatorProcess(process_of(pod), pod["status"]["podIP"])
    return Load(cluster, namespace, nodes, watcher, operator, jobs=jobs)


def writes(changes: list[Change], kind: str) -> Counter[str]:
    """How often the objects of a kind were made or changed, by job."""
    return Counter(change.job for change in changes if change.kind == kind and not change.gone)


def test_writes_per_job_are_these(
    reef: Installation, own_cluster: OwnCluster, namespace: str, nodes: HollowNodes, watcher: Watcher
) -> None:
    """Counted by what the API server tells its watches, from the creation of a job to the end of its clean-up."""
    load = load_of(FEW, reef, own_cluster, namespace, nodes, watcher)
    _, running = load.create()
    _, ended = load.finish()
    for kind in ("ConfigMap", "Secret", "Service", "NetworkPolicy"):
        assert writes(running + ended, kind) == dict.fromkeys(load.names, 1), kind
    objects = {kind: {change.uid for change in running + ended if change.kind == kind} for kind in CHILDREN}
    assert {kind: len(uids) for kind, uids in objects.items()} == dict.fromkeys(CHILDREN, FEW)
    statuses = writes(running, "RLTrainingJob"), writes(ended, "RLTrainingJob")
    for name in load.names:
        assert statuses[0][name] - 1 <= STATUSES_TO_RUNNING, name  # the first is its creation
        assert 1 <= statuses[1][name] <= STATUSES_OF_THE_END, name
        selector = f"involvedObject.name={name},involvedObject.kind=RLTrainingJob"
        text = own_cluster.kubectl("get", "events", "-n", namespace, "--field-selector", selector, "-o", "json")
        found = {each["reason"]: each["count"] for each in json.loads(text)["items"]}
        assert {"Provisioning": 1} | found == EVENTS  # a head may train before it is looked at again
    watcher.take()
    time.sleep(6)  # heads are asked every five seconds
    assert [change for change in watcher.take() if change.kind in (*CHILDREN, "RLTrainingJob")] == []
    load.delete()


def test_many_jobs_come_and_go(
    reef: Installation, own_cluster: OwnCluster, namespace: str, nodes: HollowNodes, watcher: Watcher
) -> None:
    load = load_of(MANY, reef, own_cluster, namespace, nodes, watcher)
    _, changes = load.create()
    made = {(change.job, change.kind, change.uid) for change in changes if change.kind in CHILDREN}
    assert Counter((job, kind) for job, kind, _ in made) == {(job, kind): 1 for job in load.names for kind in CHILDREN}
    assert None not in status_lags(changes)
    failures, changes = load.fail()
    assert {(part, each["missing"]) for part, each in failures.items()} == {
        ("worker pod", 0),
        ("head pod", 0),
        ("Deployment", 0),
    }
    assert max(known(status_lags(changes))) < 10
    load.finish()
    load.delete()
    assert load.operator.memory_mb() < 300


def test_pools_of_two_jobs_do_not_meet(
    reef: Installation, own_cluster: OwnCluster, namespace: str, nodes: HollowNodes
) -> None:
    """Job `a` with pool `b-c` beside job `a-b` with pool `c`."""
    jobs = [hollow_job("a"), hollow_job("a-b")]
    for each, name in zip(jobs, ("b-c", "c"), strict=True):
        each["spec"]["workers"][0]["name"] = name
    own_cluster.apply(jobs, namespace=namespace)
    for name in ("a", "a-b"):
        reef.wait(name, lambda now: now["workers"]["ready"] == 1, namespace=namespace)
    own_cluster.kubectl("delete", "rlj", "--all", "-n", namespace, "--wait=false")
    wait_until("their pods to go", lambda: not reef.pods("a", namespace) + reef.pods("a-b", namespace), timeout_s=60)
