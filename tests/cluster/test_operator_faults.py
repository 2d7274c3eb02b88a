"""The operator is killed, told to end and cut off: nothing is lost, nothing is doubled, and training goes on."""

from __future__ import annotations

import json
import os
import re
import signal
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from installation import Installation, pool, process_of, small_job
from kube.cluster import Cluster, OwnCluster
from kube.hollow import HollowNodes, is_ready
from kube.progress import wait_until

pytestmark = pytest.mark.timeout(600)
JOBS = 10
OUTAGE_S = 90
TRUE_AGAIN_S = 30
READY_AGAIN_S = 180
CANARY_S = 75  # a beat every 30 s, and one that may fall into the outage
ENDLESS = {"training_iteration": 1_000_000}
TRUE_OF_HOLLOW = ("Provisioning", 1, 1, 1)  # the pods are ready, and the head answers nobody
KINDS = "configmaps,secrets,services,networkpolicies,jobs,deployments,pods"
PER_JOB = Counter(ConfigMap=1, Secret=1, Service=1, NetworkPolicy=1, Job=1, Deployment=1, Pod=2)


def objects(cluster: Cluster, namespace: str, name: str = "") -> list[dict[str, Any]]:
    """What was made for the jobs of a namespace, or for one of them."""
    selector = "app.kubernetes.io/managed-by=reef-operator" + (f",reef.dev/job={name}" if name else "")
    return list(cluster.get(KINDS, namespace=namespace, selector=selector)["items"])


def kinds(found: list[dict[str, Any]]) -> Counter[str]:
    return Counter(each["kind"] for each in found)


def uids(found: list[dict[str, Any]]) -> set[str]:
    return {each["metadata"]["uid"] for each in found}


def fetched(pod: dict[str, Any], port: int, path: str) -> tuple[int, str]:
    """Status and text of what a pod answers, asked from this machine."""
    with urllib.request.urlopen(f"http://{pod['status']['podIP']}:{port}{path}", timeout=12) as answer:
        return answer.status, answer.read().decode()


def iteration_at(head: dict[str, Any]) -> int:
    """How far a head is, in its own words."""
    return int(json.loads(fetched(head, 8080, "/progress")[1])["training"]["iteration"])


def canary_beats(operator: dict[str, Any]) -> int:
    """Changes of the operator's Lease that its watch has told."""
    found = re.search(
        r'^reef_operator_watch_changes_total\{kind="Lease"\} (\S+)', fetched(operator, 8081, "/metrics")[1], re.M
    )
    assert found
    return int(float(found[1]))


def restart_count(pod: dict[str, Any]) -> int:
    """How often a pod's container was started again."""
    return int(pod["status"]["containerStatuses"][0]["restartCount"])


def shown(status: dict[str, Any]) -> tuple[str, int, int, int]:
    """Phase, attempts, workers that are wanted and that are ready."""
    workers = status.get("workers") or {}
    return status.get("phase", ""), status.get("attempts", 0), workers.get("desired", 0), workers.get("ready", 0)


def iteration(status: dict[str, Any]) -> int:
    return int((status.get("training") or {}).get("iteration", 0))


def hollow_job(name: str) -> dict[str, Any]:
    """A job whose pods run nowhere: what is made for it counts."""
    placed = {"nodeSelector": HollowNodes.SELECTOR, "tolerations": [HollowNodes.TOLERATION]}
    return small_job(name, head=placed, workers=[pool(**placed)])


@pytest.fixture
def running(reef: Installation, own_cluster: OwnCluster, namespace: str) -> Iterator[dict[str, Any]]:
    """The head of the job `steady`, which trains with one worker."""
    job = small_job("steady", workers=[pool()], stop=ENDLESS)
    own_cluster.apply(job, namespace=namespace)
    reef.wait("steady", lambda now: now.get("phase") == "Running" and iteration(now) > 2, namespace=namespace)
    (head,) = reef.pods("steady", namespace, "head")
    yield head
    own_cluster.kubectl("delete", "rltrainingjob", "steady", "-n", namespace, "--wait=false")


def test_an_operator_killed_while_it_creates_makes_everything_once(
    reef: Installation, own_cluster: OwnCluster, namespace: str
) -> None:
    """SIGKILL when the first objects of ten jobs are there; the kubelet starts it again."""
    operator, restarts = process_of(reef.pod()), restart_count(reef.pod())
    with own_cluster.hollow_nodes(1):
        own_cluster.apply([hollow_job(f"many-{number}") for number in range(JOBS)], namespace=namespace)
        path = f"/api/v1/namespaces/{namespace}/secrets?labelSelector=app.kubernetes.io/managed-by=reef-operator"
        wait_until("the first Secrets", lambda: len(own_cluster.api.request("GET", path)["items"]) > 1, poll_s=0.005)
        os.kill(operator, signal.SIGKILL)
        before = objects(own_cluster, namespace)
        assert 0 < len(before) < JOBS * PER_JOB.total(), "it was killed too late to show anything"

        def told() -> bool:
            jobs = own_cluster.get("rlj", namespace=namespace)["items"]
            complete = len(objects(own_cluster, namespace)) >= JOBS * PER_JOB.total()
            return complete and [shown(job.get("status") or {}) for job in jobs] == [TRUE_OF_HOLLOW] * JOBS

        wait_until(
            "the operator's container to be started again", lambda: restart_count(reef.pod()) > restarts, timeout_s=120
        )
        reef.await_operator()
        wait_until("all objects and a true status of all jobs", told, timeout_s=TRUE_AGAIN_S)
        time.sleep(3)  # for what would come too much
        after = objects(own_cluster, namespace)
        by_job = Counter((each["metadata"]["labels"]["reef.dev/job"], each["kind"]) for each in after)
        assert by_job == Counter({(f"many-{n}", kind): count for n in range(JOBS) for kind, count in PER_JOB.items()})
        assert uids(before) <= uids(after)
        assert told()
        own_cluster.kubectl("delete", "rlj", "--all", "-n", namespace, "--wait=false")
        wait_until("all pods to go", lambda: kinds(objects(own_cluster, namespace))["Pod"] == 0, timeout_s=180)


def test_training_goes_on_without_operator_and_without_api_server(
    reef: Installation, own_cluster: OwnCluster, namespace: str, running: dict[str, Any]
) -> None:
    """The operator's pod is deleted without grace; then the API server is away for 90 s."""
    made = uids(objects(own_cluster, namespace, "steady"))

    def true_again(since: int) -> None:
        """The status has caught up with the head and with what the API server says, and nothing was made anew."""

        def caught_up() -> bool:
            ready = sum(is_ready(pod) for pod in reef.pods("steady", namespace, "worker"))
            now = reef.status("steady", namespace)
            same = (now["phase"], now["attempts"], now["workers"]["ready"]) == ("Running", 1, ready)
            return same and iteration(now) > since

        wait_until("the status to be true again", caught_up, timeout_s=TRUE_AGAIN_S)
        # after an outage Kubernetes takes pods for unready until their kubelet has spoken again
        reef.wait("steady", lambda now: now["workers"]["ready"] == 1, namespace=namespace, timeout_s=READY_AGAIN_S)
        assert kinds(objects(own_cluster, namespace, "steady")) == PER_JOB
        assert uids(objects(own_cluster, namespace, "steady")) == made

    killed = reef.pod()["metadata"]["name"]
    own_cluster.kubectl("delete", "pod", killed, "-n", reef.namespace, "--grace-period=0", "--force")
    true_again(iteration_at(running))

    reef.await_operator()
    operator = reef.pod()
    before = iteration_at(running)
    wait_until("the canary's first beat", lambda: canary_beats(operator) > 0, timeout_s=CANARY_S)
    try:
        own_cluster.stop_apiserver()
        time.sleep(OUTAGE_S)
        during = iteration_at(running)
        assert during > before
        assert fetched(operator, 8082, "/healthz")[0] == 200  # to start it again would help nobody
        beats = canary_beats(operator)
    finally:
        own_cluster.start_apiserver()
    true_again(during)
    wait_until("the watch to tell the canary's beat", lambda: canary_beats(operator) > beats, timeout_s=CANARY_S)

    own_cluster.apply(hollow_job("newcomer"), namespace=namespace)
    reef.wait("newcomer", lambda now: bool(now.get("phase")), namespace=namespace, timeout_s=30)  # its watch lives
    assert fetched(operator, 8082, "/healthz")[0] == 200
    (state,) = own_cluster.get("pod", operator["metadata"]["name"], namespace=reef.namespace)["status"][
        "containerStatuses"
    ]
    assert state["restartCount"] == 0
    assert "Activity" not in reef.log()  # a line for every probe


@pytest.fixture(scope="module")
def two_operators(reef: Installation, own_cluster: OwnCluster) -> Iterator[None]:
    """The release has two operators, of which one works; afterwards it is as before."""
    reef.upgrade(operator={"replicas": 2, "leaderElection": {"enabled": True}})
    yield
    reef.upgrade()


def operators(cluster: Cluster, namespace: str) -> list[dict[str, Any]]:
    """The operator's pods that are not being deleted."""
    pods = cluster.get("pods", namespace=namespace, selector="app.kubernetes.io/component=operator")["items"]
    return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]


def leader(cluster: Cluster, namespace: str) -> str:
    """Which operator's pod holds the Lease."""
    leases = cluster.get("leases", namespace=namespace)["items"]
    (lease,) = (each for each in leases if each["metadata"]["name"].endswith("-leader"))
    return str(lease["spec"]["holderIdentity"])


@pytest.mark.usefixtures("two_operators")
def test_another_operator_takes_over_while_a_job_runs(
    reef: Installation, own_cluster: OwnCluster, namespace: str, running: dict[str, Any]
) -> None:
    """The one that leads stands still: the other does what is asked meanwhile, and who wakes up does nothing more."""
    made = uids(objects(own_cluster, namespace, "steady"))
    led = leader(own_cluster, reef.namespace)
    (asleep,) = (pod for pod in operators(own_cluster, reef.namespace) if pod["metadata"]["name"] == led)
    process = process_of(asleep)
    os.kill(process, signal.SIGSTOP)
    try:
        own_cluster.apply(small_job("steady", workers=[pool(replicas=2)], stop=ENDLESS), namespace=namespace)
        before = iteration_at(running)
        wait_until("another to lead", lambda: leader(own_cluster, reef.namespace) != led, timeout_s=TRUE_AGAIN_S)
    finally:
        os.kill(process, signal.SIGCONT)
    wait_until("the one that led to end", lambda: not Path(f"/proc/{process}").exists(), timeout_s=TRUE_AGAIN_S)

    def true_again(now: dict[str, Any]) -> bool:
        return (now["phase"], now["workers"]["ready"]) == ("Running", 2) and iteration(now) > before + 5

    assert reef.wait("steady", true_again, namespace=namespace)["attempts"] == 1
    after = objects(own_cluster, namespace, "steady")
    assert kinds(after) == PER_JOB + Counter(Pod=1)
    assert made <= uids(after)


@pytest.mark.usefixtures("two_operators")
def test_an_operator_that_is_told_to_end_does_so_at_once(reef: Installation, own_cluster: OwnCluster) -> None:
    """At work, and while it waits for the Lease of another."""
    reef.await_operator()
    processes = [process_of(pod) for pod in operators(own_cluster, reef.namespace)]
    assert len(processes) == 2
    for process in processes:
        os.kill(process, signal.SIGTERM)
    for process in processes:
        wait_until("the operator to end", lambda: not Path(f"/proc/{process}").exists(), timeout_s=20)  # noqa: B023
    reef.await_operator()


@pytest.mark.usefixtures("two_operators")
def test_what_a_job_left_behind_is_removed(reef: Installation, own_cluster: OwnCluster, namespace: str) -> None:
    """A job deleted in the one way that tells the garbage collector to leave its objects alone."""
    reef.upgrade(operator={"extraEnv": [{"name": "REEF_OPERATOR_RESYNC_SECONDS", "value": "5"}]})
    with own_cluster.hollow_nodes(1):
        own_cluster.apply(hollow_job("leaver"), namespace=namespace)
        wait_until("the job's objects", lambda: kinds(objects(own_cluster, namespace)) == PER_JOB, timeout_s=30)
        own_cluster.kubectl("delete", "rltrainingjob", "leaver", "-n", namespace, "--cascade=orphan")
        wait_until("them to go", lambda: not objects(own_cluster, namespace), timeout_s=180)
    log = reef.log()
    assert {f"delete orphan {kind} leaver" in log for kind in PER_JOB if kind != "Pod"} == {True}, log
