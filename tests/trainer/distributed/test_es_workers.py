"""ES on Ray workers: other noise on each."""

from __future__ import annotations

import numpy as np
import pytest

from reef.algorithms.es import ESConfig

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]


def settings() -> ESConfig:
    config = ESConfig().environment("CartPole-v1").debugging(seed=0)
    config = config.rollouts(num_rollout_workers=2, num_envs_per_worker=4)
    return config.training(
        episodes_per_batch=16, train_batch_size=1, noise_size=10_000, model={"fcnet_hiddens": [8]}, eval_prob=0.0
    ).reporting(min_sample_timesteps_per_iteration=1)


def test_workers_play_other_noise() -> None:
    with settings().build() as algorithm:
        learned = []
        learn = algorithm.learn
        algorithm.learn = lambda batches: learned.append(batches["default_policy"]) or learn(batches)  # type: ignore[method-assign, func-returns-value, assignment]
        algorithm.train()
        assert len(np.unique(learned[0].indices)) == 8 and learned[0].returns.shape == (8, 2)
        everywhere = algorithm.workers.foreach_worker(lambda worker: worker.acting_weights()["default_policy"])
        own = algorithm.learners.weights()["default_policy"]
        assert all((weights == own).all() for weights in everywhere)
