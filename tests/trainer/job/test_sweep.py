"""A job with spec.tune in pods: trials on the workers' nodes, a head that is lost, what is refused."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from reef.api import job_from_document
from reef.errors import ReefError, ResourceError
from reef.job.cluster import Node
from reef.job.head import checked_process, checked_sweep

pytestmark = [pytest.mark.ray, pytest.mark.timeout(480)]
GRID = {"parameters": {"lr": {"grid": [0.01, 0.001, 0.0001]}}}


def folder(job: Any) -> Path:
    (found,) = job.folder.glob("storage/team/cart-u1/sweep_PPO_CartPole-v1_*")
    return Path(found)


def test_trials_run_in_all_pods_and_outlive_their_head(job, document):
    """The head's node holds no trial, as one takes two CPUs: their files come to its folder all the same."""
    made = document(
        tune=GRID,
        config={"num_cpus_for_local_worker": 2},
        workers=[{"name": "cpu", "replicas": 1, "resources": {"requests": {"cpu": 2}}}],
        stop={"training_iteration": 60},
    )
    worker = job.worker(1, REEF_CPUS="2")
    head = job.head(made)
    half = job.wait_for("the second trial", lambda now: now.get("trials", {}).get("finished", 0) >= 1, 150)
    assert half["state"] == "training"
    job.wait_for("its checkpoint", lambda now: list(folder(job).glob("trial_0002/checkpoint_*")))
    head.kill()
    first = (folder(job) / "trial_0001" / "result.json").stat().st_mtime_ns
    head = job.head(made)
    assert head.ends(120) == 0, head.said[-3000:]
    ending = head.ending()
    assert ending["reason"] == "Completed"
    assert ending["trials"] == {"total": 3, "running": 0, "finished": 3, "failed": 0}
    best = ending["bestTrial"]
    assert (best["iteration"], best["metric"]) == (60, ending["training"]["rewardMean"])
    assert Path(best["checkpoint"]).parent == folder(job) / best["name"]
    assert ending["checkpoint"]["path"] == best["checkpoint"]
    assert ending["training"]["iteration"] == 3 * 60
    assert ending["message"].startswith(f"3 trials: 3 finished; best {best['name']}: episode_reward_mean")
    assert (folder(job) / "trial_0001" / "result.json").stat().st_mtime_ns == first, "a finished trial is not run again"
    assert "continuing: 1 trials have ended already" in head.said
    assert worker.process.poll() is None


def test_sigterm_ends_the_trials_with_checkpoints(job, document):
    head = job.head(document(tune=GRID | {"maxConcurrentTrials": 1}, checkpoint={"frequency": 0}))
    job.wait_for("results", lambda now: "training" in now and now["training"]["iteration"] >= 3, 150)
    head.process.send_signal(signal.SIGTERM)
    assert head.ends() == 143, head.said[-3000:]
    ending = head.ending()
    assert (ending["reason"], ending["message"].split(";")[0]) == ("Terminated", "SIGTERM")
    assert ending["trials"] == {"total": 3, "running": 0, "finished": 0, "failed": 0}
    trials = json.loads((folder(job) / "trials.json").read_text())["trials"]
    assert trials[0]["iteration"] >= 3
    assert trials[0]["checkpoint"].endswith(f"checkpoint_{trials[0]['iteration']:06d}")


def test_a_new_head_goes_on_from_the_object_store(job, document, s3):
    """Another node has none of the files: neither those of the sweep nor those of its trials."""
    asked = document(
        tune=GRID | {"maxConcurrentTrials": 1},
        checkpoint={"frequency": 10, "keep": 2, "storage": {"uri": "s3://bucket/reef", "secretRef": {"name": "s3"}}},
        stop={"training_iteration": 100},
    )
    head = job.head(asked, REEF_STORAGE_PATH=str(job.folder / "first"))
    job.wait_for("the first trial", lambda now: now.get("trials", {}).get("finished", 0) == 1, 150)
    (stored,) = s3.bucket.glob("reef/team/cart-u1/sweep_PPO_CartPole-v1_*")
    assert list(stored.glob("trial_0001/checkpoint_000100-*/manifest.json")), "finished means that it is in the store"
    job.wait_until("a checkpoint of the second", lambda: list(stored.glob("trial_0002/checkpoint_*/manifest.json")))
    head.kill()
    first = (stored / "trial_0001/result.json").stat().st_mtime_ns

    head = job.head(asked, REEF_STORAGE_PATH=str(job.folder / "second"))
    assert head.ends(150) == 0, head.said[-3000:]
    assert "continuing: 1 trials have ended already" in head.said
    assert "trial_0002 (lr=0.001) begins after iteration" in head.said
    ending = head.ending()
    assert ending["trials"] == {"total": 3, "running": 0, "finished": 3, "failed": 0}
    best = ending["bestTrial"]
    assert ending["checkpoint"]["path"] == best["checkpoint"]
    assert best["checkpoint"] == f"s3://bucket/reef/team/cart-u1/{stored.name}/{best['name']}/checkpoint_000100"
    assert list(s3.folder.glob(f"{best['checkpoint'].removeprefix('s3://')}-*/manifest.json")), "after its writer"
    assert (stored / "trial_0001/result.json").stat().st_mtime_ns == first, "a finished trial is not run again"
    trials = json.loads((stored / "trials.json").read_text())["trials"]
    assert [trial["state"] for trial in trials] == ["finished"] * 3
    for trial in trials:
        lines = [json.loads(line) for line in (stored / trial["name"] / "result.json").read_text().splitlines()]
        assert [line["training_iteration"] for line in lines] == list(range(1, 101))


def test_a_sweep_for_a_bucket_that_is_not_there_ends_at_once(job, document, s3):
    asked = document(tune=GRID, checkpoint={"storage": {"uri": "s3://nobucket/reef", "secretRef": {"name": "s3"}}})
    head = job.head(asked)
    assert head.ends() == 2, head.said[-3000:]
    assert "s3://nobucket/reef/team/cart-u1" in head.ending()["message"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"tune": {"parameters": {"lrr": {"grid": [1]}}}}, "spec.tune.parameters.lrr"),
        ({"tune": GRID, "config": {"num_cpus_for_local_worker": 2}}, "num_cpus_for_local_worker 2"),
        ({"tune": {"parameters": {"num_rollout_workers": {"grid": [0, 5]}}}}, "num_rollout_workers=5 of a trial"),
    ],
)
def test_everything_wrong_is_found_before_ray_starts(document, changes, expected):
    node = Node(ip="127.0.0.1", cpus=1, gpus=0, object_store=None)
    job = job_from_document(document(**changes))
    with pytest.raises(ReefError) as caught:
        checked_sweep(job, checked_process(job, node).config, node)
    assert expected in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("changes", [{"tune": GRID, "config": {"num_cpus_for_local_worker": 2}}, {"config": {
    "num_rollout_workers": 2, "num_cpus_per_worker": 3}}])  # fmt: skip
def test_a_job_that_has_begun_is_not_wrong_for_lack_of_pods(document, changes, caplog):
    """They were scaled away since, or it would not have begun."""
    node = Node(ip="127.0.0.1", cpus=1, gpus=0, object_store=None)
    job = job_from_document(document(workers=[{"name": "cpu", "replicas": 1}], **changes))
    with pytest.raises(ResourceError):
        checked_sweep(job, checked_process(job, node).config, node)
    local = checked_process(job, node, begun=True)
    plan = checked_sweep(job, local.config, node, begun=True)
    assert (plan is None) == ("tune" not in changes)
    assert local.config.num_rollout_workers == changes["config"].get("num_rollout_workers", 0)
    assert "the job goes on when there are more pods: " in caplog.text


def test_without_a_number_in_the_settings_a_trial_has_no_rollout_workers(document):
    pools = [{"name": "cpu", "replicas": 3}]
    node = Node(ip="127.0.0.1", cpus=1, gpus=0, object_store=None)
    alone, swept = (job_from_document(document(workers=pools, **more)) for more in ({}, {"tune": GRID}))
    assert checked_process(alone, node).config.num_rollout_workers == 3
    assert checked_process(swept, node).config.num_rollout_workers == 0
