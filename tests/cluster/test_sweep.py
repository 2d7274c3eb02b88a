"""A sweep inside a job's pods: its trials share them, and the status names the best one."""

from __future__ import annotations

import re

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


def test_a_random_search_ends_the_weak_early(reef: Installation, cluster: Cluster, namespace: str) -> None:
    """Trials are compared by their learning rates, which the seed decides: of these four the third is the smallest."""
    tune = {
        "parameters": {"lr": {"logUniform": [1e-4, 1e-2]}},
        "numSamples": 4,
        "maxConcurrentTrials": 1,
        "metric": "info/learner/default_policy/learner_stats/cur_lr",
        "scheduler": {"kind": "asha", "gracePeriod": 2, "reductionFactor": 2},
    }
    cluster.apply(small_job("random", iterations=6, tune=tune, workers=[pool()]), namespace=namespace)
    end = reef.wait_for_phase("random", "Succeeded", "Failed", namespace=namespace)
    assert (end["phase"], end["attempts"]) == ("Succeeded", 1), end["message"]
    assert end["trials"] == {"total": 4, "finished": 4, "running": 0, "failed": 0}
    best = end["bestTrial"]
    assert (best["name"], best["config"], best["iteration"]) == ("trial_0002", {"lr": best["metric"]}, 6)
    (head,) = reef.pods("random", namespace, "head")
    log = cluster.kubectl("logs", "-n", namespace, head["metadata"]["name"])
    ended = re.findall(r"(trial_\d+) .*ended after iteration (\d+): (\w+)", log)
    assert [(name, iteration) for name, iteration, why in ended if why == "asha"] == [("trial_0003", "2")]
    assert len(ended) == 4


def test_a_sweep_whose_trials_do_not_fit_says_so(reef: Installation, cluster: Cluster, namespace: str) -> None:
    tune = {"parameters": {"lr": {"grid": RATES}}, "metric": "episode_reward_mean"}
    job = small_job("wide", tune=tune, workers=[pool()], config={"num_rollout_workers": 40})
    cluster.apply(job, namespace=namespace)
    end = reef.wait_for_phase("wide", "Failed", "Succeeded", namespace=namespace)
    assert end["phase"] == "Failed" and "num_rollout_workers=40 of a trial" in end["message"]
