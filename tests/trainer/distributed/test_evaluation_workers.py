"""Evaluation in processes of its own."""

import logging
import os
import signal
from typing import Any

import pytest

from reef.algorithms.ppo import PPOConfig

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster"), pytest.mark.timeout(120)]


def config(**evaluation: Any) -> PPOConfig:
    return (
        PPOConfig()
        .environment("CartPole-v1")
        .resources(num_cpus_per_worker=0.5)
        .training(train_batch_size=64, sgd_minibatch_size=64, num_sgd_iter=1, model={"fcnet_hiddens": [8]})
        .evaluation(evaluation_num_workers=1, evaluation_duration=3, **evaluation)
        .debugging(seed=0)
    )


@pytest.mark.parametrize("recreate", [False, True])
def test_evaluation_that_takes_too_long_is_a_warning_with_remedies(ray_cluster, caplog, recreate) -> None:
    settings = config(evaluation_sample_timeout_s=3.0).fault_tolerance(recreate_failed_workers=recreate)
    with settings.build() as algorithm:
        first = algorithm.evaluate()["evaluation"]
        assert first["episodes_this_iter"] == 3
        hanging = algorithm.evaluation.workers.foreach_worker(lambda worker: os.getpid())[1]
        os.kill(hanging, signal.SIGSTOP)  # a process that hangs for good
        with caplog.at_level(logging.WARNING):
            again = algorithm.evaluate()["evaluation"]
        assert again == first, "the last metrics are reported"
        for remedy in ("(1) raise evaluation_sample_timeout_s", "(2) lower", "(3) raise evaluation_num_workers"):
            assert remedy in caplog.text
        assert algorithm.evaluate()["evaluation"]["episodes_this_iter"] == 3, "new workers are started"
