"""Jobs are held, resumed, scaled and deleted: training is never lost, and nothing stays behind."""

from __future__ import annotations

import json
import time
from datetime import datetime
from functools import partial
from typing import Any

import pytest
from installation import CHILDREN, Installation, pool, small_job
from kube.cluster import Cluster, OwnCluster
from kube.hollow import is_ready
from kube.pki import NODE
from kube.progress import ClusterError, wait_until

pytestmark = pytest.mark.timeout(600)
LONG = {"stop": {"training_iteration": 100_000}}
STATUS_LAG_S = 10


def stored(claim: str) -> dict[str, Any]:
    """Checkpoints only where the head is stopped."""
    return {"frequency": 0, "storage": {"persistentVolumeClaim": {"claimName": claim}}}


def iteration(status: dict[str, Any], part: str = "training") -> int:
    return int((status.get(part) or {}).get("iteration", 0))


def left(cluster: Cluster, namespace: str, job: str, kinds: str = CHILDREN) -> list[str]:
    """What is there of a job."""
    return cluster.kubectl("get", kinds, "-n", namespace, "-l", f"reef.dev/job={job}", "-o", "name").split()


def patch(cluster: Cluster, namespace: str, job: str, **spec: Any) -> None:
    change = json.dumps({"spec": spec})
    cluster.kubectl("patch", "rltrainingjob", job, "-n", namespace, "--type=merge", "-p", change)


def checkpoints(cluster: OwnCluster, namespace: str) -> list[int]:
    """Iterations of the checkpoints on the test's volume, oldest first."""
    found = cluster.machine.run(
        ["find", f"/run/volumes/{namespace}", "-path", "*checkpoint_*/metadata.json", "-exec", "cat", "{}", ";"]
    )
    decoder, position, iterations = json.JSONDecoder(), 0, []
    while position < len(found):
        document, position = decoder.raw_decode(found, position)
        iterations.append(int(document["iteration"]))
    return sorted(iterations)


def test_suspended_resumed_and_deleted(
    reef: Installation, own_cluster: OwnCluster, volume: str, namespace: str
) -> None:
    """A held job has written a checkpoint and holds nothing; it goes on from there; a deleted one leaves results."""
    job = small_job("pausing", workers=[pool()], checkpoint=stored(volume), **LONG)
    own_cluster.apply(job, namespace=namespace)
    before = reef.wait("pausing", lambda now: iteration(now) >= 5, namespace=namespace)
    assert checkpoints(own_cluster, namespace) == []

    patch(own_cluster, namespace, "pausing", suspend=True)
    held = reef.wait_for_phase("pausing", "Suspended", "Failed", namespace=namespace)
    assert left(own_cluster, namespace, "pausing", "pods,jobs,deployments,replicasets") == []
    assert held["phase"] == "Suspended"
    assert held["workers"]["desired"] == 0
    (saved,) = checkpoints(own_cluster, namespace)
    assert saved >= max(iteration(held, "checkpoint"), iteration(held), iteration(before))

    patch(own_cluster, namespace, "pausing", suspend=False)
    again = reef.wait("pausing", lambda now: iteration(now) > saved, namespace=namespace)
    assert again["attempts"] == 2
    (head,) = reef.pods("pausing", namespace, "head")
    assert f"continuing after iteration {saved}" in own_cluster.kubectl(
        "logs", "-n", namespace, head["metadata"]["name"]
    )
    reasons = [reason for reason, _ in reef.events("pausing", namespace)]
    assert {"Suspending", "Suspended", "Resumed"} <= set(reasons)

    last = iteration(reef.status("pausing", namespace))
    own_cluster.kubectl("delete", "rltrainingjob", "pausing", "-n", namespace, "--timeout=60s")
    wait_until("everything to be gone", lambda: not left(own_cluster, namespace, "pausing"), timeout_s=180)
    assert checkpoints(own_cluster, namespace)[-1] >= last


def test_a_head_that_is_deleted_after_its_training_ended_is_not_trained_anew(
    reef: Installation, cluster: Cluster, namespace: str
) -> None:
    """Kubernetes may start another head for one that only answered for its last metrics: it is not heard, and goes."""
    job = small_job("done", stop={"training_iteration": 2000}, faultTolerance={"terminationGracePeriodSeconds": 5})

    def log_of_head() -> str:
        return cluster.kubectl("logs", "-n", namespace, "job/done-head")

    cluster.apply(job, namespace=namespace)
    reef.wait_for_phase("done", "Running", "Succeeded", namespace=namespace)
    wait_until("the head to have trained", lambda: "done: " in log_of_head(), timeout_s=180)
    cluster.kubectl("delete", "pod", "-n", namespace, "-l", "reef.dev/job=done", "--wait=false")
    ended = reef.wait_for_phase("done", "Succeeded", "Failed", namespace=namespace)
    assert (ended["phase"], iteration(ended)) == ("Succeeded", 2000)
    wait_until("no head to run", lambda: not running(cluster, namespace, "done"), timeout_s=60)
    last = reef.status("done", namespace)
    assert (last["training"], last["completionTime"]) == (ended["training"], ended["completionTime"])


def running(cluster: Cluster, namespace: str, job: str) -> list[str]:
    """Names of a job's pods that may still do something."""
    found = cluster.get("pods", namespace=namespace, selector=f"reef.dev/job={job}")["items"]
    return [pod["metadata"]["name"] for pod in found if pod["status"]["phase"] not in ("Succeeded", "Failed")]


def test_a_pool_is_scaled_while_training_goes_on(reef: Installation, cluster: Cluster, namespace: str) -> None:
    """Up by `kubectl scale`, down by an edit; rollout workers follow, no new attempt, and the head stays."""
    job = small_job("elastic", workers=[pool()], **LONG)
    cluster.apply(job, namespace=namespace)
    reef.wait("elastic", lambda now: iteration(now) > 0, namespace=namespace)
    (head,) = reef.pods("elastic", namespace, "head")
    at_work = partial(reef.rollout_workers, head)
    wait_until("one rollout worker", lambda: at_work() == (1, 0), timeout_s=120)

    cluster.kubectl("scale", "rltrainingjob", "elastic", "-n", namespace, "--replicas=3")
    wide = reef.wait("elastic", lambda now: ready(now) == (3, 3), namespace=namespace)
    selector = wide["workers"]["selector"]
    assert len(cluster.get("pods", namespace=namespace, selector=selector)["items"]) == 3, "what an autoscaler counts"

    wait_until("the rollout workers of all pods", lambda: at_work() == (3, 0), timeout_s=240)

    patch(cluster, namespace, "elastic", replicas=1)
    narrow = reef.wait("elastic", lambda now: ready(now) == (1, 1), namespace=namespace)
    after = reef.wait("elastic", lambda now: iteration(now) > iteration(narrow) + 5, namespace=namespace)
    assert (after["phase"], after["attempts"]) == ("Running", 1)
    assert [pod["metadata"]["uid"] for pod in reef.pods("elastic", namespace, "head")] == [head["metadata"]["uid"]]
    wait_until("one rollout worker", lambda: at_work() == (1, 0), timeout_s=240)  # once the head reads of it
    messages = [message for reason, message in reef.events("elastic", namespace) if reason == "Scaled"]
    assert {"workers: 1 -> 3", "workers: 3 -> 1"} <= set(messages)


def test_fewer_workers_will_do_down_to_the_least_that_is_asked_for(
    reef: Installation, own_cluster: OwnCluster, namespace: str
) -> None:
    """While the node takes no new pods two workers of three train on, one alone waits, and all go on in the end."""
    own_cluster.apply(small_job("thin", workers=[pool(replicas=3, minReplicas=2)], **LONG), namespace=namespace)
    reef.wait("thin", lambda now: iteration(now) > 0 and ready(now) == (3, 3), namespace=namespace)
    (head,) = reef.pods("thin", namespace, "head")

    def lose_one() -> None:
        lost = next(pod for pod in reef.pods("thin", namespace, "worker") if is_ready(pod))["metadata"]["name"]
        own_cluster.kubectl("delete", "pod", lost, "-n", namespace, "--grace-period=0", "--force")

    own_cluster.kubectl("cordon", NODE)
    try:
        lose_one()
        thin = reef.wait("thin", lambda now: ready(now) == (2, 3), namespace=namespace)
        on = reef.wait("thin", lambda now: iteration(now) > iteration(thin) + 20, namespace=namespace)
        assert (on["phase"], on["message"]) == ("Running", thin["message"]) and "pauses" not in on["message"]

        lose_one()
        pause = "training pauses, pool cpu: 1 of 3 pods have joined (at least 2)"
        reef.wait("thin", lambda now: pause in now.get("message", ""), namespace=namespace)
        time.sleep(STATUS_LAG_S)
        held = iteration(reef.status("thin", namespace))
        time.sleep(STATUS_LAG_S)
        assert iteration(reef.status("thin", namespace)) == held
    finally:
        own_cluster.kubectl("uncordon", NODE)

    reef.wait("thin", lambda now: iteration(now) > held and ready(now) == (3, 3), namespace=namespace)
    wait_until("three rollout workers", lambda: reef.rollout_workers(head) == (3, 0), timeout_s=240)
    end = reef.status("thin", namespace)
    assert (end["phase"], end["attempts"]) == ("Running", 1)
    assert [pod["metadata"]["uid"] for pod in reef.pods("thin", namespace, "head")] == [head["metadata"]["uid"]]


def ready(status: dict[str, Any]) -> tuple[int, int]:
    """Workers that are ready, and that are wanted."""
    return status["workers"]["ready"], status["workers"]["desired"]


def test_a_finished_job_goes_in_stages(reef: Installation, cluster: Cluster, namespace: str) -> None:
    """First the workers, then the head, then the job and all that is left of it."""
    stages = {"cleanup": {"workerDelaySeconds": 5, "headDelaySeconds": 5}, "ttlSecondsAfterFinished": 40}
    cluster.apply(small_job("brief", workers=[pool()], **stages), namespace=namespace)
    end = reef.wait_for_phase("brief", "Succeeded", "Failed", namespace=namespace)
    assert end["phase"] == "Succeeded"
    wait_until("the job to go", lambda: not left(cluster, namespace, "brief"), timeout_s=180)
    assert "brief" not in cluster.kubectl("get", "rltrainingjobs", "-n", namespace, "-o", "name")
    # a look in between may come too late: a machine that stands still for a while skips a stage
    removals = reef.removals("brief", namespace)
    assert [kind for kind, _ in removals] == ["Deployment", "Job", "RLTrainingJob"]
    ended = datetime.fromisoformat(end["completionTime"])
    after = [(moment - ended).total_seconds() for _, moment in removals]
    assert after[0] >= 5 and after[1] >= 10 and after[2] >= 40


def test_an_immutable_field_stays_and_says_so(reef: Installation, cluster: Cluster, namespace: str) -> None:
    cluster.apply(small_job("settled", **LONG), namespace=namespace)
    reef.wait("settled", lambda now: iteration(now) > 0, namespace=namespace)
    if cluster.checks_rules:
        with pytest.raises(ClusterError, match=r"spec.environment.name cannot be changed: set it back, or create"):
            patch(cluster, namespace, "settled", environment={"name": "Acrobot-v1"})

    def accepted(status: dict[str, Any]) -> dict[str, Any]:
        return next(one for one in status["conditions"] if one["type"] == "DocumentAccepted")

    with reef.without_rules():
        patch(cluster, namespace, "settled", environment={"name": "Acrobot-v1"})
        refused = reef.wait("settled", lambda now: accepted(now)["reason"] == "ImmutableField", namespace=namespace)
        message = accepted(refused)["message"]
        assert "spec.environment" in message and "create another job" in message
        after = reef.wait("settled", lambda now: iteration(now) > iteration(refused), namespace=namespace)
        assert (after["phase"], after["attempts"]) == ("Running", 1)
        patch(cluster, namespace, "settled", environment={"name": "CartPole-v1"})
        reef.wait("settled", lambda now: accepted(now)["reason"] == "Accepted", namespace=namespace)


def test_a_queue_places_a_job_that_it_lets_in(reef: Installation, cluster: Cluster, namespace: str) -> None:
    """As Kueue does: created suspended, let in with the node selectors of its flavor, and taken back again."""
    cluster.apply(small_job("queued", workers=[pool()], suspend=True, **LONG), namespace=namespace)
    waits = reef.wait_for_phase("queued", "Suspended", "Failed", namespace=namespace)
    assert waits["attempts"] == 0 and left(cluster, namespace, "queued") == []

    flavor = {"kubernetes.io/os": "linux"}
    place = [
        {"op": "add", "path": "/spec/head/nodeSelector", "value": flavor},
        {"op": "add", "path": "/spec/workers/0/nodeSelector", "value": flavor},
        {"op": "replace", "path": "/spec/suspend", "value": False},
    ]
    cluster.kubectl("patch", "rlj", "queued", "-n", namespace, "--type=json", "-p", json.dumps(place))
    reef.wait("queued", lambda now: iteration(now) > 0 and ready(now) == (1, 1), namespace=namespace)
    pods = cluster.get("pods", namespace=namespace, selector="reef.dev/job=queued")["items"]
    assert [pod["spec"]["nodeSelector"] for pod in pods] == [flavor] * 2

    patch(cluster, namespace, "queued", suspend=True)
    reef.wait_for_phase("queued", "Suspended", "Failed", namespace=namespace)
    assert left(cluster, namespace, "queued", "pods,jobs,deployments,replicasets") == []


def test_a_job_and_a_namespace_go_while_the_operator_is_down(
    reef: Installation, cluster: Cluster, namespace: str, without_operator: Any
) -> None:
    """Nothing waits for the operator: no finalizer of it holds a job, and whatever was made for one is its own."""
    with cluster.namespace("doomed") as doomed:
        places = {"doomed": doomed, "deleted": namespace}
        for name, place in places.items():
            cluster.apply(small_job(name, workers=[pool()], **LONG), namespace=place)
        for name, place in places.items():
            wait_until("its pods", lambda name=name, place=place: len(reef.pods(name, place)) == 2, timeout_s=180)
        without_operator()
        assert len(left(cluster, namespace, "deleted")) >= 8
        cluster.kubectl("delete", "rltrainingjob", "deleted", "-n", namespace, "--timeout=60s")
        cluster.kubectl("delete", "namespace", doomed, "--wait=false")
        wait_until("the job's objects to be gone", lambda: not left(cluster, namespace, "deleted"), timeout_s=180)

        def gone() -> bool:
            try:
                cluster.get("namespace", doomed)
            except ClusterError as error:
                return "NotFound" in str(error)
            return False

        wait_until("the namespace to be gone", gone, timeout_s=240)
