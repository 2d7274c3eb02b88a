"""A sweep inside a job's pods: its trials share them, and the status names the best one."""

from __future__ import annotations

import pytest
from installation import Installation, pool, small_job
from kube.cluster import Cluster

pytestmark = pytest.mark.timeout(900)
RATES = [0.001, 0.01]


def test_a_sweep_runs_to_its_end_and_names_the_best_trial(reef: Installation, cluster: Cluster, namespace: str) -> None:
    tune = {"parameters": {"lr": {"grid": RATES}}, "numSamples": 2, "metric": "episode_reward_mean"}
    job = small_job("grid", iterations=4, tune=tune, workers=[pool(replicas=2)])
    cluster.apply(job, namespace=namespace)
    seen = reef.wait("grid", lambda now: (now.get("trials") or {}).get("finished", 0) > 0, namespace=namespace)
    assert seen["trials"]["total"] == 4
    end = reef.wait_for_phase("grid", "Succeeded", "Failed", namespace=namespace)
    assert (end["phase"], end["attempts"]) == ("Succeeded", 1), end["message"]
    assert end["trials"] == {"total": 4, "finished": 4, "running": 0, "failed": 0}
    best = end["bestTrial"]
    assert best["config"]["lr"] in RATES and best["iteration"] == 4 and best["metric"] > 0
    assert best["name"] in best["checkpoint"]


def test_a_sweep_whose_trials_do_not_fit_says_so(reef: Installation, cluster: Cluster, namespace: str) -> None:
    tune = {"parameters": {"lr": {"grid": RATES}}, "metric": "episode_reward_mean"}
    job = small_job("wide", tune=tune, workers=[pool()], config={"num_rollout_workers": 40})
    cluster.apply(job, namespace=namespace)
    end = reef.wait_for_phase("wide", "Failed", "Succeeded", namespace=namespace)
    assert end["phase"] == "Failed" and "num_rollout_workers=40 of a trial" in end["message"]
