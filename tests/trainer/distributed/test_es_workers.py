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


def test_after_an_iteration_all_workers_filter_by_what_all_have_seen() -> None:
    with settings().build() as algorithm:
        known = []
        for _ in range(2):
            algorithm.train()
            filters = algorithm.workers.foreach_worker(lambda worker: worker.filters["default_policy"].state()["stat"])
            assert len({float(each["count"]) for each in filters}) == 1 < len(filters)
            for each in filters:
                np.testing.assert_array_equal(each["mean"], filters[0]["mean"])
            known.append(float(filters[0]["count"]))
        assert 0 < known[0] < known[1]
