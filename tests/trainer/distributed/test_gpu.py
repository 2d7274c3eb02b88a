"""Learners and rollout workers in processes of their own that were given a GPU, or a share of one.

Nothing here runs where torch finds no GPU.
"""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np
import pytest
import torch

from reef.algorithms.ppo import PPOConfig
from reef.run.algorithm import Algorithm

pytestmark = [
    pytest.mark.ray,
    pytest.mark.usefixtures("ray_cluster"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU"),
]


def config(**resources: Any) -> PPOConfig:
    made = PPOConfig().environment("CartPole-v1").debugging(seed=5).rollouts(num_envs_per_worker=2)
    made.training(train_batch_size=128, sgd_minibatch_size=32, num_sgd_iter=2, lr=1e-3)
    made.training(model={"fcnet_hiddens": [16]})
    made.fault_tolerance(recreate_failed_workers=True, delay_between_worker_restarts_s=0.0)
    return made.resources(**({"num_cpus_per_learner_worker": 0.5} | resources))


def trained(algorithm: Algorithm) -> np.ndarray[Any, Any]:
    for _ in range(2):
        algorithm.train()
    return algorithm.learners.weights()["default_policy"]


@pytest.mark.parametrize(
    "learners",
    [
        {"num_learner_workers": 1, "num_gpus_per_learner_worker": 1},  # NCCL
        {"num_learner_workers": 2, "num_gpus_per_learner_worker": 0.5},
    ],
)  # gloo
def test_learners_with_a_gpu_come_to_the_weights_of_the_cpu(learners: dict[str, float]) -> None:
    with config().build() as here:
        expected = trained(here)
    with config(**learners).build() as there:
        group = there.learners._group  # type: ignore[attr-defined]
        found = trained(there)
        assert np.quantile(np.abs(found - expected), 0.99) < 1e-3
        os.kill(group.process(1).pid, signal.SIGKILL)
        assert np.isfinite(trained(there)).all()
        assert group.num_restarts >= 1


def test_workers_with_a_share_of_a_gpu_act_there() -> None:
    made = config(num_gpus_per_worker=0.25, num_gpus=0.5, num_cpus_per_worker=0.5)
    made.rollouts(num_rollout_workers=2, num_envs_per_worker=4).training(model={"fcnet_hiddens": [2048, 2048, 2048]})
    with made.build() as algorithm:
        trained(algorithm)
        devices = algorithm.workers.foreach_worker(lambda worker: worker.policy_map["default_policy"].device.type)
        assert devices[-2:] == ["cuda", "cuda"]
