from __future__ import annotations

import pytest

from reef.algorithms.ppo import PPOConfig
from reef.rollout.worker import RolloutWorker


def test_a_batch_that_does_not_divide_evenly_is_sampled_in_one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = (
        PPOConfig()
        .environment("CartPole-v1")
        .rollouts(num_envs_per_worker=3, rollout_fragment_length="auto")
        .training(train_batch_size=40, sgd_minibatch_size=13, num_sgd_iter=1, model={"fcnet_hiddens": [8]})
        .debugging(seed=0)
    )
    shared = settings.copy().rollouts(num_rollout_workers=3).freeze()
    workers = [RolloutWorker(shared, index) for index in (1, 2, 3)]
    with settings.build() as algorithm:
        monkeypatch.setattr(algorithm.workers, "sample", lambda: [worker.sample() for worker in workers])
        assert algorithm.train()["num_env_steps_trained"] == 39  # 3 x (5 + 4 + 4)


def test_a_batch_smaller_than_the_environments_is_sampled() -> None:
    settings = PPOConfig().environment("CartPole-v1").rollouts(num_envs_per_worker=8)
    with settings.training(train_batch_size=4, sgd_minibatch_size=4, num_sgd_iter=1).build() as algorithm:
        assert algorithm.train()["num_env_steps_trained"] == 8
