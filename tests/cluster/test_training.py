"""Jobs on a real cluster: they train to their end, and survive the loss of any pod and process."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from installation import Installation, example, kill, pool, small_job
from kube.cluster import Cluster, OwnCluster
from kube.progress import wait_until

pytestmark = pytest.mark.timeout(900)
LONG = {"stop": {"training_iteration": 100_000}}
FREQUENCY = 20  # iterations between two checkpoints
COLUMNS = [
    "NAME", "PHASE", "ALGORITHM", "ENVIRONMENT", "ITERATION", "STEPS", "REWARD", "EVALUATION", "READY", "DESIRED",
    "ATTEMPTS", "AGE",
]  # fmt: skip
RECREATE = {"delay_between_worker_restarts_s": 0.5}


def storage(claim: str) -> dict[str, Any]:
    return {"frequency": FREQUENCY, "keep": 3, "storage": {"persistentVolumeClaim": {"claimName": claim}}}


def iteration(status: dict[str, Any]) -> int:
    return int((status.get("training") or {}).get("iteration", 0))


def test_the_example_trains_to_its_end_with_workers_and_gpus(
    reef: Installation, own_cluster: OwnCluster, namespace: str
) -> None:
    """Head, two CPU workers and a GPU pool; status, Events and printer columns tell the story."""
    own_cluster.set_gpus(4)
    job = example(
        "cartpole-ppo",
        head={"resources": {"requests": {"cpu": "50m", "memory": "300Mi"}}},
        workers=[pool("cpu", 2), pool("gpu", 1, gpu={"count": 1})],
    )
    job["spec"]["config"] |= {"evaluation_interval": 5, "evaluation_duration": 3}
    own_cluster.apply(job, namespace=namespace)
    status = reef.wait_for_phase("cartpole-ppo", "Running", "Succeeded", "Failed", namespace=namespace)
    status = reef.wait("cartpole-ppo", lambda now: now["workers"]["ready"] == 3, namespace=namespace)
    assert status["workers"]["desired"] == 3
    limits = [
        pod["spec"]["containers"][0]["resources"].get("limits", {}) for pod in reef.pods("cartpole-ppo", namespace)
    ]
    assert [each.get("nvidia.com/gpu") for each in limits].count("1") == 1
    status = reef.wait_for_phase("cartpole-ppo", "Succeeded", "Failed", namespace=namespace, timeout_s=700)
    assert status["phase"] == "Succeeded", status
    assert status["training"]["rewardMean"] >= 450 or status["training"]["timesteps"] >= 300_000
    assert status["evaluation"]["episodes"] == 3
    assert status["attempts"] == 1
    told_in_events = {"Running", "Succeeded"}
    wait_until("Events", lambda: told_in_events <= {reason for reason, _ in reef.events("cartpole-ppo", namespace)})
    # The pods of a finished job end one after the other: the row and the status are compared when none is left.
    status = reef.wait("cartpole-ppo", lambda now: now["workers"]["ready"] == 0, namespace=namespace)
    plain = shown(own_cluster.kubectl("get", "rlj", "-n", namespace))
    assert list(plain) == COLUMNS
    row = shown(own_cluster.kubectl("get", "rlj", "-n", namespace, "-o", "wide"))
    assert list(row) == [*COLUMNS, "STEPS/S", "RECREATED", "CHECKPOINT", "MESSAGE"]
    assert re.fullmatch(r"\d+[smh].*", row["AGE"]) and float(row["STEPS/S"]) > 0 and row["MESSAGE"] in status["message"]
    assert [row[column] for column in ("NAME", "PHASE", "ALGORITHM", "ENVIRONMENT")] == [
        "cartpole-ppo", "Succeeded", "PPO", "CartPole-v1",
    ]  # fmt: skip
    told = {
        "ITERATION": status["training"]["iteration"],
        "STEPS": status["training"]["timesteps"],
        "REWARD": status["training"]["rewardMean"],
        "EVALUATION": status["evaluation"]["rewardMean"],
        "READY": status["workers"]["ready"],
        "DESIRED": status["workers"]["desired"],
        "RECREATED": status["workers"]["recreated"],
        "ATTEMPTS": 1,
        "CHECKPOINT": status["checkpoint"]["iteration"],
    }
    assert {column: float(row[column]) for column in told} == pytest.approx(told)
    assert "rltrainingjob.reef.dev/cartpole-ppo" in own_cluster.kubectl("get", "all", "-n", namespace)
    manual = own_cluster.kubectl("explain", "rltrainingjob.spec.workers.minReplicas")
    assert "Training goes on while at least this many pods are ready" in " ".join(manual.split())


def shown(table: str) -> dict[str, str]:
    """The one row of a table of kubectl, by column; cells may hold single spaces."""
    heading, row = table.rstrip().splitlines()
    starts = [match.start() for match in re.finditer(r"(?<!\S)\S", heading)]
    ends = [*starts[1:], None]
    return {heading[a:b].strip(): row[a:b].strip() for a, b in zip(starts, ends, strict=True)}


def test_training_goes_on_when_a_worker_is_lost(reef: Installation, cluster: Cluster, namespace: str) -> None:
    """A pod deleted without grace, then a Ray worker process killed: no new attempt, the count comes back."""
    job = small_job("lossy", workers=[pool("cpu", 2)], config=RECREATE, **LONG)
    cluster.apply(job, namespace=namespace)
    reef.wait("lossy", lambda status: iteration(status) > 0 and status["workers"]["ready"] == 2, namespace=namespace)
    victim = reef.pods("lossy", namespace, "worker")[0]["metadata"]["name"]
    cluster.kubectl("delete", "pod", victim, "-n", namespace, "--grace-period=0", "--force")
    before = iteration(reef.status("lossy", namespace))
    status = reef.wait(
        "lossy",
        lambda now: now["workers"]["recreated"] >= 1 and now["workers"]["ready"] == 2 and iteration(now) > before + 5,
        namespace=namespace,
    )
    assert status["attempts"] == 1
    settled = reef.wait("lossy", lambda now: iteration(now) > iteration(status) + 5, namespace=namespace)
    recreated = settled["workers"]["recreated"]
    survivor = reef.pods("lossy", namespace, "worker")[0]["metadata"]["name"]  # its actor has been there all the time
    cluster.kubectl("exec", "-n", namespace, survivor, "--", "python", "-c", KILL_A_WORKER)
    status = reef.wait("lossy", lambda now: now["workers"]["recreated"] > recreated, namespace=namespace)
    killed_at = iteration(status)
    status = reef.wait(
        "lossy", lambda now: iteration(now) > killed_at + 5 and now["workers"]["ready"] == 2, namespace=namespace
    )
    assert (status["phase"], status["attempts"]) == ("Running", 1)
    (head,) = reef.pods("lossy", namespace, "head")
    wait_until("both rollout workers", lambda: reef.rollout_workers(head) == (2, 0))


KILL_A_WORKER = """
import contextlib, os, pathlib, signal
def name(folder):
    with contextlib.suppress(OSError):  # it may have ended meanwhile
        return (folder / "cmdline").read_bytes()
    return b""
for folder in pathlib.Path("/proc").glob("[0-9]*"):
    if name(folder).startswith(b"ray::ActorProcess"):
        os.kill(int(folder.name), signal.SIGKILL)
        break
else:
    raise SystemExit("no actor runs here")
"""


def test_a_killed_head_is_replaced_and_goes_on_from_its_checkpoint(
    reef: Installation, own_cluster: OwnCluster, volume: str, namespace: str
) -> None:
    """Workers stay and join the new head; no more is lost than since the newest checkpoint, and the job succeeds."""
    job = small_job("phoenix", workers=[pool("cpu", 2)], config=RECREATE, checkpoint=storage(volume), **LONG)
    own_cluster.apply(job, namespace=namespace)
    before = reef.wait("phoenix", lambda now: bool(now.get("checkpoint")) and iteration(now) > 25, namespace=namespace)
    workers = {pod["metadata"]["uid"] for pod in reef.pods("phoenix", namespace, "worker")}
    (head,) = reef.pods("phoenix", namespace, "head")
    # the next head will see it, and trains long enough to be looked at, however fast this machine is
    end = {"spec": {"stop": {"training_iteration": None, "time_total_s": 45}}}
    own_cluster.kubectl("patch", "rltrainingjob", "phoenix", "-n", namespace, "--type=merge", "-p", json.dumps(end))

    def handed_over(document: dict[str, Any]) -> bool:
        return bool(json.loads(document["data"]["job.json"])["spec"]["stop"] == {"time_total_s": 45})

    own_cluster.wait_for("configmap", "phoenix-job", handed_over, namespace=namespace)
    kill(head)
    reached = last_iteration(own_cluster, namespace)
    reef.wait(
        "phoenix", lambda now: now["attempts"] == 2 and now["phase"] == "Running", namespace=namespace, timeout_s=240
    )
    pods = reef.pods("phoenix", namespace, "worker")
    assert {pod["metadata"]["uid"] for pod in pods} == workers
    assert [pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods] == [0, 0]
    head = reef.pods("phoenix", namespace, "head")[-1]
    wait_until("both rollout workers of the new head", lambda: reef.rollout_workers(head) == (2, 0), timeout_s=120)
    # the kubelet looks at them every few seconds
    reef.wait("phoenix", lambda now: now["workers"]["ready"] == 2, namespace=namespace, timeout_s=60)
    resumed = reef.resumed("phoenix", namespace)
    assert resumed % FREQUENCY == 0, "it had no time for another checkpoint"
    assert max(reached - FREQUENCY, before["checkpoint"]["iteration"]) <= resumed <= reached
    status = reef.wait_for_phase("phoenix", "Succeeded", "Failed", namespace=namespace)
    assert (status["phase"], status["attempts"]) == ("Succeeded", 2)


def last_iteration(cluster: OwnCluster, namespace: str) -> int:
    """The last whole line of the results on the test's volume."""
    tail = ["find", f"/run/volumes/{namespace}", "-name", "result.json", "-exec", "tail", "-n", "2", "{}", "+"]
    lines = cluster.machine.run(tail).splitlines(keepends=True)
    whole = [line for line in lines if line.endswith("\n")]
    return int(json.loads(whole[-1])["training_iteration"])
