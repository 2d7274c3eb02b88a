"""Evaluation in processes of its own."""

import logging
import os
import signal
import time
from typing import Any

import pytest

from reef.algorithms.ppo import PPOConfig
from reef.errors import WorkerError

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster"), pytest.mark.timeout(120)]


def config(**evaluation: Any) -> PPOConfig:
    return (
        PPOConfig()
        .environment("CartPole-v1")
        .resources(num_cpus_per_worker=0.5)
        .training(train_batch_size=64, sgd_minibatch_size=64, num_sgd_iter=1, model={"fcnet_hiddens": [8]})
        .evaluation(**{"evaluation_num_workers": 1, "evaluation_duration": 3} | evaluation)
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


@pytest.mark.parametrize("policy", ["recreate_failed_workers", "ignore_worker_failures"])
def test_a_killed_evaluation_worker_costs_no_episode(policy: str) -> None:
    settings = config(evaluation_num_workers=2).fault_tolerance(**{policy: True})
    with settings.build() as algorithm:
        assert algorithm.evaluate()["evaluation"]["num_healthy_workers"] == 2
        workers = algorithm.evaluation.workers
        os.kill(workers.foreach_worker(lambda worker: os.getpid())[2], signal.SIGKILL)
        after = algorithm.evaluate()["evaluation"]
        assert (after["episodes_this_iter"], after["num_healthy_workers"]) == (3, 1)
        replaced = policy == "recreate_failed_workers"
        deadline = time.monotonic() + 60.0
        while replaced and workers.num_healthy < 2:
            assert time.monotonic() < deadline
            assert algorithm.evaluate()["evaluation"]["episodes_this_iter"] == 3
        assert workers.num_restarts == replaced
        weights = workers.foreach_worker(lambda worker: worker.acting_weights()["default_policy"].tolist())
        assert weights == weights[:1] * (3 if replaced else 2), "a replacement has them as well"
        assert algorithm.evaluate()["evaluation"]["episodes_this_iter"] == 3


def test_a_killed_evaluation_worker_ends_the_run_by_default() -> None:
    with config().build() as algorithm:
        algorithm.evaluate()
        os.kill(algorithm.evaluation.workers.foreach_worker(lambda worker: os.getpid())[1], signal.SIGKILL)
        with pytest.raises(
            WorkerError, match=r"evaluation worker 1 failed in sample_episodes\(\): its process \d+ died"
        ):
            algorithm.evaluate()
