"""A job whose checkpoints are in an object store: an S3 server on this machine, which pods reach over the network."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from installation import Installation, kill, pool, small_job
from kube.cluster import OwnCluster
from s3_server import S3

pytestmark = pytest.mark.timeout(900)
URI = "s3://bucket/reef"


@pytest.fixture
def store(own_cluster: OwnCluster, namespace: str, tmp_path: Path) -> Iterator[S3]:
    """The server, and a Secret `store` with its credentials in the test's namespace."""
    server = S3(tmp_path / "s3", own_cluster.machine.network.host)
    try:
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "store"}, "stringData": server.environment}
        own_cluster.apply([secret], namespace=namespace)
        yield server
    finally:
        server.stop()


def checkpoint(uri: str = URI) -> dict[str, Any]:
    return {"frequency": 10, "keep": 2, "storage": {"uri": uri, "secretRef": {"name": "store"}}}


def test_a_killed_head_is_replaced_and_goes_on_from_the_store(
    reef: Installation, own_cluster: OwnCluster, namespace: str, store: S3
) -> None:
    job = small_job("stored", workers=[pool("cpu", 1)], checkpoint=checkpoint(), stop={"training_iteration": 100_000})
    own_cluster.apply(job, namespace=namespace)
    before = reef.wait("stored", lambda now: bool(now.get("checkpoint")), namespace=namespace, timeout_s=240)
    assert before["checkpoint"]["path"].startswith(f"{URI}/{namespace}/stored-")
    conditions = {each["type"]: each for each in before["conditions"]}
    assert conditions["StorageDurable"]["reason"] == "ObjectStore"
    (head,) = reef.pods("stored", namespace, "head")
    kill(head)
    stored = store.folder.rglob("checkpoint_*/manifest.json")
    kept = max(int(each.parent.name.removeprefix("checkpoint_").partition("-")[0]) for each in stored)
    reef.wait(
        "stored",
        lambda now: (now["attempts"], now["phase"]) == (2, "Running"),
        namespace=namespace,
        timeout_s=240,
    )
    resumed = reef.resumed("stored", namespace)
    after = reef.wait("stored", lambda now: now["checkpoint"]["iteration"] > resumed, namespace=namespace)
    assert after["checkpoint"]["path"].rpartition("/")[0] == before["checkpoint"]["path"].rpartition("/")[0]
    assert before["checkpoint"]["iteration"] <= kept <= resumed
    log = own_cluster.kubectl("logs", "-n", namespace, reef.pods("stored", namespace, "head")[-1]["metadata"]["name"])
    assert store.environment["AWS_SECRET_ACCESS_KEY"] not in log


def test_a_sweep_is_kept_in_the_store(reef: Installation, own_cluster: OwnCluster, namespace: str, store: S3) -> None:
    """Trials run in a worker's pod, which has no credentials; the head uploads."""
    tune = {"parameters": {"lr": {"grid": [0.001, 0.01]}}}
    job = small_job("swept", iterations=10, tune=tune, workers=[pool()], checkpoint=checkpoint())
    own_cluster.apply(job, namespace=namespace)
    end = reef.wait_for_phase("swept", "Succeeded", "Failed", namespace=namespace)
    assert (end["phase"], end["trials"]["finished"]) == ("Succeeded", 2), end["message"]
    place = end["bestTrial"]["checkpoint"]
    assert place.startswith(f"{URI}/{namespace}/swept-") and place.endswith("/checkpoint_000010")
    assert list(store.folder.glob(f"{place.removeprefix('s3://')}-*/manifest.json")), "after its writer"


def test_a_rollout_worker_in_a_pod_of_its_own_writes_episodes_into_the_store(
    reef: Installation, own_cluster: OwnCluster, namespace: str, store: S3
) -> None:
    """By the credentials of the checkpoints, which pods of workers get as the settings name a store."""
    recorded = {"output": "s3://bucket/episodes", "output_max_file_size": 65536}  # files are complete while it trains
    job = small_job("recorded", config=recorded, workers=[pool()], checkpoint=checkpoint(), iterations=300)
    own_cluster.apply(job, namespace=namespace)
    reef.wait("recorded", lambda now: now.get("phase") == "Running", namespace=namespace, timeout_s=240)
    secret = [{"secretRef": {"name": "store"}}]
    for component in ("head", "worker"):
        (pod,) = reef.pods("recorded", namespace, component)
        assert pod["spec"]["containers"][0]["envFrom"] == secret, component
    end = reef.wait_for_phase("recorded", "Succeeded", "Failed", namespace=namespace)
    assert end["phase"] == "Succeeded", end["message"]
    written = [path for path in (store.folder / "bucket" / "episodes").iterdir() if path.is_file()]
    assert written and all("_worker-1" in path.name for path in written), written
    steps = [step for path in written for line in path.read_text().splitlines() for step in json.loads(line)["steps"]]
    assert len(steps) > 64, "more than a batch"


def test_a_bucket_that_is_not_there_fails_the_job_and_says_so(
    reef: Installation, own_cluster: OwnCluster, namespace: str, store: S3
) -> None:
    own_cluster.apply(small_job("lost", checkpoint=checkpoint("s3://nobucket/reef")), namespace=namespace)
    status = reef.wait_for_phase("lost", "Failed", "Succeeded", namespace=namespace, timeout_s=240)
    assert status["phase"] == "Failed" and status["attempts"] <= 2  # servers before 1.26 start the next head at once
    assert "NoSuchBucket" in status["message"]
    assert "spec.checkpoint.storage.uri" in status["message"]
