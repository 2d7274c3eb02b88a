"""Every algorithm on a GPU: its learner comes to the weights of the CPU's, and a checkpoint moves between the two.

Nothing here runs where torch finds no GPU.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from test_every_algorithm import Echo, small

from reef.algorithms.registry import ALGORITHMS
from reef.config import AlgorithmConfig
from reef.learn.device import learner_device
from reef.run.algorithm import Algorithm

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU")

LEARNERS = [name for name in ALGORITHMS if name != "ES"]  # ES computes no gradient
NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "relu": ("PPO", {"model": {"fcnet_hiddens": [32], "fcnet_activation": "relu"}}),
    "shared layers": ("PPO", {"model": {"fcnet_hiddens": [32], "vf_share_layers": True}}),
    "LSTM": ("PPO", {"model": {"fcnet_hiddens": [32], "use_lstm": True, "lstm_cell_size": 32, "max_seq_len": 8}}),
    "LSTM, previous action and reward": (
        "PPO",
        {"model": {"use_lstm": True, "lstm_use_prev_action": True, "lstm_use_prev_reward": True, "max_seq_len": 8}},
    ),
    "GTrXL": ("PPO", {"model": {"use_attention": True, "attention_dim": 32, "max_seq_len": 8}}),
    "categorical values, noisy": ("DQN", {"num_atoms": 11, "v_min": 0.0, "v_max": 60.0, "noisy": True}),
    "RMSprop": ("A2C", {"optimizer": {"type": "RMSpropTF"}}),
    "AdamW": ("PPO", {"optimizer": {"type": "AdamW"}}),
    "clipped gradient": ("PPO", {"grad_clip": 0.1}),
}


class Pixels(Echo):
    """Which third of an image is bright?"""

    observation_space = spaces.Box(0, 255, (24, 24, 1), np.uint8)  # type: ignore[assignment]

    def image(self) -> np.ndarray[Any, Any]:
        image = self.np_random.integers(0, 100, (24, 24, 1), np.uint8)
        image[:, 8 * self.shown : 8 * self.shown + 8] += 100
        return image

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        super().reset(**options)
        return self.image(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        _, *rest = super().step(action)
        return self.image(), *rest  # type: ignore[return-value]


def with_network(case: str) -> AlgorithmConfig:
    name, settings = NETWORKS[case]
    config = small(name).rollouts(observation_filter="NoFilter", rollout_fragment_length="auto")
    return config.training(**settings)


def weights(algorithm: Algorithm) -> np.ndarray[Any, Any]:
    return algorithm.learners.weights()["default_policy"]


def assert_learns_the_same(config: AlgorithmConfig) -> None:
    """Both begin with the same weights and the same steps; only the order of sums may differ."""
    with config.copy().build() as here, config.copy().resources(num_gpus=1).build() as there:
        assert learner_device(there.config).type == "cuda"
        before = weights(here)
        np.testing.assert_array_equal(before, weights(there))
        results = [each.train()["info"]["learner"]["default_policy"]["learner_stats"] for each in (here, there)]
        assert np.abs(weights(here) - before).max() > 1e-5
        # Adam divides by the gradient's size: where that is nearly zero, rounding decides the direction of a step.
        difference = np.abs(weights(here) - weights(there))
        assert np.quantile(difference, 0.99) < 1e-4, f"{difference.max()=} {np.quantile(difference, 0.5)=}"
        assert results[0].keys() == results[1].keys()


@pytest.mark.parametrize("name", LEARNERS)
def test_it_learns_there_as_on_the_cpu(name: str) -> None:
    assert_learns_the_same(small(name))


@pytest.mark.parametrize("case", NETWORKS)
def test_a_network_learns_there_as_on_the_cpu(case: str) -> None:
    assert_learns_the_same(with_network(case))


def test_pixels_are_learnt_from_there_as_on_the_cpu() -> None:
    config = small("PPO").environment(Pixels).rollouts(observation_filter="NoFilter")
    assert_learns_the_same(config.training(model={"conv_filters": [[8, 4, 2], [16, 4, 2]]}))


@pytest.mark.parametrize("what", ["forward_train", "complete_update"])
def test_a_compiled_learner_learns_there_as_on_the_cpu(what: str) -> None:
    compiled = {"torch_compile_learner": True, "torch_compile_learner_what_to_compile": what}
    config = small("PPO").rollouts(observation_filter="NoFilter")
    with config.copy().build() as here, config.resources(num_gpus=1).framework(**compiled).build() as there:
        here.train(), there.train()
        assert np.quantile(np.abs(weights(here) - weights(there)), 0.99) < 1e-4


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_checkpoint_moves_between_the_two(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reef.rollout.acting_device.ENOUGH_FOR_A_GPU", 0)
    with small(name).resources(num_gpus=1).build() as there:
        there.train()
        assert there.get_policy().device.type == "cuda"
        path = there.save(tmp_path / "checkpoint")
        trained = weights(there).copy()
        obs = np.full(there.get_policy().observation_layout.size, 0.03, np.float32)
    with Algorithm.from_checkpoint(path) as again, small(name).build() as on_cpu:
        on_cpu.restore(path)
        for each in (again, on_cpu):
            np.testing.assert_array_equal(weights(each), trained)
        actions = [each.compute_single_action(obs, explore=False) for each in (again, on_cpu)]
        np.testing.assert_allclose(*actions, atol=1e-3)
        again.train(), on_cpu.train()
        back = on_cpu.save(tmp_path / "back")
    with small(name).resources(num_gpus=1).build() as once_more:
        once_more.restore(back)
        assert once_more.get_policy().device.type == "cuda"
        once_more.train()


@pytest.mark.parametrize("name", ["PPO", "IMPALA", "DQN", "SAC"])
def test_training_on_a_gpu_is_repeated_by_its_seed(name: str) -> None:
    runs = []
    for _ in range(2):
        with small(name).resources(num_gpus=1).build() as algorithm:
            algorithm.train()
            runs.append(weights(algorithm))
    np.testing.assert_array_equal(*runs)
