"""What happens on the test cluster while Prometheus looks on: jobs of every fate, and faults that Reef survives."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from installation import Installation, Job, example, pool, small_job
from kube.cluster import Cluster, OwnCluster
from kube.progress import ClusterError, stage, wait_until

NAMESPACE, SHOWN, OTHER = "research", "cartpole-ppo", "cartpole-dqn"
OUTAGE_S = 10
LIMIT_S = 600  # for each thing that is waited for
AFTERWARDS_S = 45  # so that the last fault is seen to be over
LITTLE = {"resources": {"requests": {"cpu": "50m", "memory": "300Mi"}}}
FOREVER = {"timesteps_total": 1_000_000_000}
END_OF_CONTAINER = "import os, signal; os.kill(1, signal.SIGTERM)"


def jobs() -> list[Job]:
    """Two that train until the end of the story, and one each that ends, waits, is held and is wrong."""
    shown = example(SHOWN, head=LITTLE, workers=[pool("cpu", 2)], stop=FOREVER)
    slowly = {"lr": 0.0003, "kl_coeff": 0.2, "entropy_coeff": 0.01}  # it learns for minutes, and has all statistics
    evaluated = {"evaluation_interval": 5, "evaluation_duration": 3}
    shown["spec"]["config"] |= {**slowly, **evaluated, "delay_between_worker_restarts_s": 1}
    shown["spec"]["checkpoint"] = {"frequency": 5, "keep": 3}
    return [
        shown,
        example(OTHER, head=LITTLE, stop=FOREVER, checkpoint={"frequency": 1, "keep": 3}),
        small_job("first-try"),
        small_job("needs-large-node", head={**LITTLE, "nodeSelector": {"size": "large"}}),
        small_job("next-week", suspend=True),
        small_job("misspelt", environment={"name": "CartPol-v1"}),
    ]


@contextlib.contextmanager
def namespace(cluster: Cluster) -> Iterator[None]:
    """The jobs' namespace, whose name is in the pictures; removed with all that is in it."""
    cluster.kubectl("create", "namespace", NAMESPACE)
    try:
        cluster.wait_for("serviceaccount", "default", lambda _: True, namespace=NAMESPACE)
        yield
    finally:
        cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
        with contextlib.suppress(ClusterError):
            cluster.kubectl("delete", "pods", "--all", "-n", NAMESPACE, "--grace-period=1", "--wait=false")


def happen(reef: Installation, cluster: OwnCluster, seconds: float) -> None:
    """Everything in its turn; takes so long at least.

    Raises:
        ClusterError: something did not come about within its limit.
    """
    begun = time.monotonic()
    cluster.apply(jobs(), namespace=NAMESPACE)
    with stage("Training begins"):
        reef.wait(SHOWN, evaluated_with_all_workers, namespace=NAMESPACE, timeout_s=LIMIT_S)
        reef.wait(OTHER, lambda now: bool(now.get("training")), namespace=NAMESPACE, timeout_s=LIMIT_S)
    time.sleep(seconds / 8)
    with stage("A worker's pod is deleted without grace"):
        lost = name_of_worker(reef)
        cluster.kubectl("delete", "pod", lost, "-n", NAMESPACE, "--grace-period=0", "--force")
        reef.wait(SHOWN, replaced, namespace=NAMESPACE, timeout_s=LIMIT_S)
    time.sleep(seconds / 8)
    with stage("A head's pod is deleted without grace"):
        head = reef.pods(OTHER, NAMESPACE, "head")[-1]["metadata"]["name"]
        before = reef.status(OTHER, NAMESPACE)["attempts"]
        cluster.kubectl("delete", "pod", head, "-n", NAMESPACE, "--grace-period=0", "--force")
        reef.wait(OTHER, lambda now: now["attempts"] > before, namespace=NAMESPACE, timeout_s=LIMIT_S)
    with stage("A worker's container ends"):
        with contextlib.suppress(ClusterError):  # it may take this very process with it
            cluster.kubectl("exec", "-n", NAMESPACE, name_of_worker(reef), "--", "python", "-c", END_OF_CONTAINER)
        wait_until("the container to be started again", lambda: restarted(reef), timeout_s=LIMIT_S)
    time.sleep(seconds / 8)
    with stage("The API server is away"):
        cluster.stop_apiserver()
        try:
            time.sleep(OUTAGE_S)
        finally:
            cluster.start_apiserver()
        reef.await_operator()
    time.sleep(max(AFTERWARDS_S, begun + seconds - time.monotonic()))


def evaluated_with_all_workers(status: dict[str, Any]) -> bool:
    """Whether the shown job has everything that its panels show."""
    return bool(status.get("evaluation") and status.get("checkpoint") and status["workers"]["ready"] == 2)


def replaced(status: dict[str, Any]) -> bool:
    """Whether a rollout worker has come back in another pod."""
    return bool(status["workers"]["recreated"] and status["workers"]["ready"] == 2)


def name_of_worker(reef: Installation) -> str:
    """The oldest pod of the shown job's workers."""
    return str(reef.pods(SHOWN, NAMESPACE, "worker")[0]["metadata"]["name"])


def restarted(reef: Installation) -> bool:
    """Whether a worker's container has been started again."""
    statuses = [pod["status"]["containerStatuses"][0] for pod in reef.pods(SHOWN, NAMESPACE, "worker")]
    return any(each["restartCount"] and each["ready"] for each in statuses)
