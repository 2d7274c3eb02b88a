"""What a program does with an algorithm, where no other test shows it."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from reef import PPOConfig
from reef.nn.policies import Policy


def config() -> PPOConfig:
    made = PPOConfig().environment("Pendulum-v1").rollouts(num_envs_per_worker=3).debugging(seed=1)
    sizes = {"train_batch_size": 60, "sgd_minibatch_size": 30, "num_sgd_iter": 1}
    return made.training(**sizes, model={"fcnet_hiddens": [4]})


def test_one_call_of_the_policy_acts_for_all_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []
    act = Policy.act

    def watched(self: Policy, obs: Any, *given: Any) -> Any:
        rows.append(len(obs))
        return act(self, obs, *given)

    with config().build() as algorithm:
        monkeypatch.setattr(Policy, "act", watched)
        (sample,) = algorithm.sample()
    assert sample.env_steps == 60
    assert rows == [3] * 20


def test_a_function_is_called_with_each_environment() -> None:
    with config().build() as algorithm:
        (seen,) = algorithm.workers.foreach_worker(lambda worker: worker.foreach_env(lambda each: each))
    assert len(seen) == 3


def test_environments_that_are_stepped_as_one_are_one_object() -> None:
    with PPOConfig().environment("CartPole-v1").rollouts(num_envs_per_worker=3).build() as algorithm:
        (seen,) = algorithm.workers.foreach_worker(lambda worker: worker.foreach_env(lambda env: env))
    assert [(type(env).__name__, env.num_envs, env.gravity) for env in seen] == [("CartPoleVectorEnv", 3, 9.8)]
    made = PPOConfig().environment(lambda env_config: gym.make("CartPole-v1")).rollouts(num_envs_per_worker=3)
    with made.build() as algorithm:
        ((*seen,),) = algorithm.workers.foreach_worker(lambda worker: worker.foreach_env(lambda env: env.unwrapped))
    assert [env.gravity for env in seen] == [9.8] * 3


def test_weights_are_those_of_the_local_workers_policy() -> None:
    with config().build() as algorithm:
        algorithm.train()
        of_policy = algorithm.get_policy().get_weights()
        of_worker = algorithm.workers.local_worker().policy_map["default_policy"].get_weights()
    assert of_policy.keys() == of_worker.keys()
    assert all(np.array_equal(of_policy[name], of_worker[name]) for name in of_policy)
