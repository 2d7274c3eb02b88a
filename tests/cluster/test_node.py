"""A node that is lost takes no job with it: the reason is shown, and the job goes on once there is a node again."""

from __future__ import annotations

from typing import Any

import pytest
from installation import Installation, pool, processes_of, small_job
from kube.cluster import OwnCluster
from kube.progress import wait_until

pytestmark = pytest.mark.timeout(600)
NOT_LONG = [  # pods of a lost node go after 10 s, not after five minutes
    {"key": f"node.kubernetes.io/{taint}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 10}
    for taint in ("not-ready", "unreachable")
]


def iteration(status: dict[str, Any]) -> int:
    return int((status.get("training") or {}).get("iteration", 0))


def conditions(status: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["type"]: each for each in status.get("conditions") or []}


def test_a_job_outlives_its_node(reef: Installation, own_cluster: OwnCluster, volume: str, namespace: str) -> None:
    """Its node falls silent, pods are replaced and find no place; the node comes back, and the job trains on.

    A second node is there: nothing is evicted from a cluster whose nodes are all silent.
    """
    job = small_job(
        "stranded",
        head={"tolerations": NOT_LONG},
        workers=[pool(tolerations=NOT_LONG)],
        stop={"training_iteration": 1_000_000},
        checkpoint={"frequency": 10, "storage": {"persistentVolumeClaim": {"claimName": volume}}},
        faultTolerance={"terminationGracePeriodSeconds": 10},
    )
    own_cluster.apply(job, namespace=namespace)
    before = reef.wait("stranded", lambda now: bool(now.get("checkpoint")), namespace=namespace)
    pods = {pod["metadata"]["uid"] for pod in reef.pods("stranded", namespace)}
    (old_head,) = reef.pods("stranded", namespace, "head")

    def reason(status: dict[str, Any]) -> str:
        return str(conditions(status)["HeadReady"]["reason"])

    def silent() -> bool:
        """By an Event, which stays: the condition holds for ten seconds."""
        said = [message for why, message in reef.events("stranded", namespace) if why == "NodeLost"]
        return any("does not answer" in message and old_head["metadata"]["name"] in message for message in said)

    with own_cluster.hollow_nodes(1):
        try:
            own_cluster.stop_kubelet()
            wait_until("the silent node to be told", silent, timeout_s=60)
            lost = reef.wait("stranded", lambda now: reason(now) == "Unschedulable", namespace=namespace, timeout_s=150)
            assert "node" in conditions(lost)["HeadReady"]["message"]
            assert lost["phase"] == "Retrying"
        finally:
            own_cluster.start_kubelet()
    reef.await_operator()
    again = reef.wait(
        "stranded",
        lambda now: now["phase"] == "Running" and now["workers"]["ready"] == 1 and now["attempts"] == 2,
        namespace=namespace,
        timeout_s=240,
    )
    after = reef.wait("stranded", lambda now: iteration(now) > iteration(again), namespace=namespace)
    assert iteration(after) >= before["checkpoint"]["iteration"]
    alive = reef.pods("stranded", namespace)
    assert len(alive) == 2
    assert not pods & {pod["metadata"]["uid"] for pod in alive}
    assert reef.resumed("stranded", namespace) >= before["checkpoint"]["iteration"]
    wait_until("the head before it to have ended", lambda: not processes_of(old_head))
