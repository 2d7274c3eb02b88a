"""From a job document to settings."""

from __future__ import annotations

from typing import Any

import pytest

from reef.api import RLTrainingJob, job_from_document
from reef.job.settings import checkpoint_settings, cluster_config_of, config_of

POOLS = [
    {"name": "a", "replicas": 2, "resources": {"requests": {"cpu": 2}}},
    {"name": "g", "replicas": 1, "gpu": {"count": 1}, "rolloutWorkers": 0},
]


@pytest.fixture(name="job")
def job_fixture(document: Any) -> Any:
    return lambda **spec: job_from_document(document(**spec))


def test_settings_come_from_the_document(job: Any) -> None:
    config = config_of(job(config={"lr": 0.5, "num_envs_per_worker": 3}))
    assert (config.env, config.lr, config.num_envs_per_worker, config.num_rollout_workers) == ("CartPole-v1", 0.5, 3, 0)


def test_pools_give_the_rollout_workers_unless_the_settings_do(job: Any) -> None:
    assert config_of(job(workers=POOLS)).num_rollout_workers == 2
    assert config_of(job(workers=POOLS, config={"num_rollout_workers": 5})).num_rollout_workers == 5
    with pytest.warns(FutureWarning, match="num_rollout_workers"):
        assert config_of(job(workers=POOLS, config={"num_workers": 0})).num_rollout_workers == 0


@pytest.mark.parametrize(
    ("given", "recreate", "delay"),
    [
        ({}, True, 5.0),
        ({"recreate_failed_workers": False}, False, 5.0),
        ({"ignore_worker_failures": True, "delay_between_worker_restarts_s": 60}, False, 60.0),
    ],
)
def test_a_cluster_replaces_workers_unless_the_document_says_otherwise(
    job: Any, given: dict[str, Any], recreate: bool, delay: float
) -> None:
    asked: RLTrainingJob = job(config=given)
    config = cluster_config_of(asked)
    assert (config.recreate_failed_workers, config.delay_between_worker_restarts_s) == (recreate, delay)
    if not given:
        assert config_of(asked).recreate_failed_workers is False


def test_older_spellings_count_as_given(job: Any) -> None:
    with pytest.warns(FutureWarning):
        assert not cluster_config_of(job(config={"recreate_failed_env_runners": False})).recreate_failed_workers


def test_checkpoints_are_written_as_the_document_says(job: Any) -> None:
    asked = checkpoint_settings(job(checkpoint={"frequency": 7, "keep": 0, "atEnd": False}))
    assert (asked.frequency, asked.keep, asked.at_end) == (7, 0, False)
    assert asked.score_attribute == "training_iteration"
