"""A policy acts on the GPU that its worker was given, if that is worth it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from reef.algorithms.ppo import PPOConfig
from reef.rollout.acting_device import ENOUGH_FOR_A_GPU, acting_device
from reef.rollout.worker import RolloutWorker

GPU, CPU = torch.device("cuda", 0), torch.device("cpu")
LARGE = {"fcnet_hiddens": [2048, 2048]}


@pytest.mark.parametrize(
    ("workers", "resources", "worker_index", "multiply_adds", "expected"),
    [
        (0, {"num_gpus": 1}, 0, ENOUGH_FOR_A_GPU, GPU),
        (0, {"num_gpus": 1, "local_gpu_idx": 1}, 0, ENOUGH_FOR_A_GPU, torch.device("cuda", 1)),
        (0, {"num_gpus": 1}, 0, ENOUGH_FOR_A_GPU - 1, CPU),
        (0, {"num_gpus": 1, "_fake_gpus": True}, 0, ENOUGH_FOR_A_GPU, CPU),
        (0, {}, 0, ENOUGH_FOR_A_GPU, CPU),
        # the local worker does not sample
        (2, {"num_gpus": 1}, 0, ENOUGH_FOR_A_GPU, CPU),
        (2, {"num_gpus": 1}, 2, ENOUGH_FOR_A_GPU, CPU),
        (2, {"num_gpus_per_worker": 0.5}, 2, ENOUGH_FOR_A_GPU, GPU),
        # a build of torch for the CPU, while the environments simulate on the GPU
        (0, {"num_gpus": 1, "local_gpu_idx": 2}, 0, ENOUGH_FOR_A_GPU, CPU),
    ],
)
def test_the_gpu_is_that_of_the_worker(
    workers: int,
    resources: dict[str, Any],
    worker_index: int,
    multiply_adds: int,
    expected: torch.device,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    config = PPOConfig().rollouts(num_rollout_workers=workers).resources(**resources)
    assert acting_device(config, worker_index, multiply_adds) == expected


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU")
@pytest.mark.parametrize("model", [LARGE, LARGE | {"use_lstm": True}])
def test_it_acts_there_as_on_the_cpu(model: dict[str, Any]) -> None:
    config = PPOConfig().environment("CartPole-v1").training(model=model).rollouts(rollout_fragment_length=8)
    there = RolloutWorker(
        config.copy().rollouts(num_envs_per_worker=8).resources(num_gpus=1).debugging(seed=1).freeze()
    )
    here = RolloutWorker(config.copy().rollouts(num_envs_per_worker=8).debugging(seed=1).freeze())
    there.set_weights(here.get_weights())
    (on_gpu,), (on_cpu,) = (worker.sample().rollouts.values() for worker in (there, here))
    assert there.policy_map["default_policy"].device == GPU
    assert here.policy_map["default_policy"].device == CPU
    np.testing.assert_allclose(
        on_gpu.extras["action_dist_inputs"][0], on_cpu.extras["action_dist_inputs"][0], atol=1e-4
    )
