"""Environments by the names that ray.tune.register_env gave them: here, in workers, in trials, and after a restore."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from ray.tune.registry import ENV_CREATOR, _global_registry, register_env

from reef import PPOConfig, tune
from reef.config.values import plain
from reef.distributed.registered_envs import with_registered_envs
from reef.errors import ConfigError
from reef.run.algorithm import Algorithm

SMALL = {"train_batch_size": 40, "sgd_minibatch_size": 20, "num_sgd_iter": 1, "model": {"fcnet_hiddens": [4]}}


class Paid(gym.Env[Any, Any]):
    """Episodes of two steps, each with the reward that it was made with."""

    observation_space = gym.spaces.Box(0, 1, (1,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, reward: float) -> None:
        self.reward, self.steps = reward, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.steps = 0
        return np.ones(1, np.float32), {}

    def step(self, action: int) -> Any:
        self.steps += 1
        return np.ones(1, np.float32), self.reward, self.steps == 2, False, {}


@pytest.fixture
def named():
    """Register `Paid` by a name, with a function that no other process could import."""
    offset = 1.0
    register_env("paid-env", lambda context: Paid(context["reward"] + offset))
    yield "paid-env"
    _global_registry.unregister(ENV_CREATOR, "paid-env")


def settings(name: str, **keys: Any) -> PPOConfig:
    return PPOConfig.from_dict({**SMALL, "env": name, "env_config": {"reward": 2.0}, "seed": 1, **keys})


def test_a_registered_name_is_an_environment_here_and_in_evaluation(named, tmp_path: Path) -> None:
    evaluation = {"evaluation_interval": 1, "evaluation_duration": 2}
    evaluation["evaluation_config"] = {"env": named, "env_config": {"reward": 4.0}}
    with settings(named, **evaluation).build() as algorithm:
        result = algorithm.train()
        assert result["episode_reward_mean"] == 6.0
        assert result["evaluation"]["episode_reward_mean"] == 10.0
        path = algorithm.save(tmp_path)
        assert algorithm.config.to_dict()["env"] == named
    with Algorithm.from_checkpoint(path) as again:
        assert again.train()["episode_reward_mean"] == 6.0


@pytest.mark.ray
def test_workers_in_other_processes_make_it_too(named, ray_cluster: Any) -> None:
    with settings(named, num_rollout_workers=2, env_config={"reward": 0.5}).build() as algorithm:
        assert algorithm.train()["episode_reward_mean"] == 3.0
        assert len(set(algorithm.workers.foreach_worker(_process))) == 3


def _process(worker: Any) -> int:
    return os.getpid()


@pytest.mark.ray
def test_trials_of_ray_tune_find_it(named, ray_cluster: Any, tmp_path: Path) -> None:
    analysis = tune.run(
        "PPO",
        stop={"training_iteration": 1},
        config=settings(named, num_rollout_workers=1),
        storage_path=tmp_path,
        verbose=0,
    )
    assert [trial.last_result["episode_reward_mean"] for trial in analysis.trials] == [6.0]


def test_settings_without_such_a_name_stay_as_they_are(named) -> None:
    config = settings("CartPole-v1").freeze()
    assert with_registered_envs(config) is config
    changed = with_registered_envs(settings(named).freeze())
    assert plain(changed.env) == changed.env.__name__ == named
    assert with_registered_envs(changed) is changed


def test_a_name_that_is_not_registered_is_refused(named) -> None:
    with pytest.raises(ConfigError, match="env='paid-environment' is not registered with Gymnasium"):
        settings("paid-environment").build()
