"""From a job document to settings."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from reef.api import RLTrainingJob, job_from_document
from reef.errors import ConfigError
from reef.job.settings import check_training, checkpoint_settings, cluster_config_of, config_of

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


class Images(gym.Env[Any, Any]):
    """Too many pixels for statistics."""

    observation_space = gym.spaces.Box(0, 255, (8, 8, 3), np.uint8)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, context: dict[str, Any]) -> None: ...

    def reset(self, **_: Any) -> Any:
        return np.zeros((8, 8, 3), np.uint8), {}

    def step(self, action: Any) -> Any:
        return np.zeros((8, 8, 3), np.uint8), 0.0, True, False, {}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"algorithm": "DQN"}, "algorithm='DQN' needs a Discrete action space"),
        ({"config": {"observation_filter": "MeanStdFilter"}}, "needs floating-point observations"),
        ({"config": {"model": {"conv_filters": [[8, 9, 1]]}}}, "shrinks an image"),
        ({"stop": {"evaluation/episode_reward_mean": 1}}, "Set config.evaluation_interval"),
    ],
)
def test_what_would_end_a_training_is_found_before(
    document: Any, changes: dict[str, Any], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "images", sys.modules[__name__])
    made = document(environment={"name": "images:Images"})
    made["spec"] |= {"config": {}} | changes
    asked = job_from_document(made)
    with pytest.raises(ConfigError, match=expected):
        check_training(asked, config_of(asked), asked.spec.stop)


def test_a_fine_training_passes(job: Any) -> None:
    asked = job(config={"evaluation_interval": 1}, stop={"evaluation/episode_reward_mean": 1})
    check_training(asked, config_of(asked), asked.spec.stop)
