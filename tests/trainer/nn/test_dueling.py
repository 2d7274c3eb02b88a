from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from reef.algorithms.dqn import DQNConfig, q_policy
from reef.errors import ConfigError
from reef.nn.dueling import NoisyLinear, QPolicy

OBS, ACTIONS = spaces.Box(-1, 1, (4,)), spaces.Discrete(3)
ROWS = torch.linspace(-1, 1, 20).reshape(5, 4)


def policy(**training: Any) -> QPolicy:
    torch.manual_seed(0)
    made = q_policy(DQNConfig().training(**{"hiddens": [8], "model": {"fcnet_hiddens": [8]}} | training), OBS, ACTIONS)
    made.bind_parameters()
    return made


def test_the_dueling_sum_keeps_the_state_value_as_the_mean() -> None:
    made = policy()
    assert made.value is not None
    values = made.value(made.encoder.forward_branch(0, ROWS)).squeeze(-1)
    torch.testing.assert_close(made.q_values(ROWS).mean(-1), values)
    advantages = made.advantage(made.encoder.forward_branch(0, ROWS))
    gaps = made.q_values(ROWS)[:, :1] - made.q_values(ROWS)
    torch.testing.assert_close(gaps, advantages[:, :1] - advantages)


def test_without_dueling_the_advantages_are_the_values() -> None:
    made = policy(dueling=False, hiddens=[])
    torch.testing.assert_close(made.q_values(ROWS), made.advantage(made.encoder.forward_branch(0, ROWS)))
    assert len(list(made.parameters())) == 4, "one hidden layer and the output"


def test_atoms_make_a_distribution_whose_mean_is_the_value() -> None:
    made = policy(num_atoms=3, v_min=-1.0, v_max=1.0)
    logits = made(ROWS)
    assert logits.shape == (5, 3, 3)
    probabilities = logits.softmax(-1)
    torch.testing.assert_close(made.q_values(ROWS), probabilities[..., 2] - probabilities[..., 0])
    torch.testing.assert_close(made.state_values(ROWS), made.q_values(ROWS).max(-1).values)


def test_noise_is_factorised_and_scaled_by_sigma() -> None:
    layer = NoisyLinear(4, 3, sigma0=0.5)
    torch.testing.assert_close(layer.weight_sigma, torch.full((3, 4), 0.25), msg="sigma0 / sqrt(in)")
    still = layer(ROWS)
    torch.testing.assert_close(still, ROWS @ layer.weight.T + layer.bias)
    layer.draw(torch.Generator().manual_seed(0))
    noise = torch.outer(layer.out_noise, layer.in_noise)
    expected = ROWS @ (layer.weight + layer.weight_sigma * noise).T + layer.bias + layer.bias_sigma * layer.out_noise
    torch.testing.assert_close(layer(ROWS), expected)
    layer.still()
    torch.testing.assert_close(layer(ROWS), still)


def test_noise_has_the_moments_of_the_paper() -> None:
    layer = NoisyLinear(20_000, 1, sigma0=0.5)
    layer.draw(torch.Generator().manual_seed(0))
    assert layer.in_noise.mean().abs() < 0.02
    # f(x) = sign(x) sqrt(|x|): E f^2 = E |x| = sqrt(2 / pi)
    assert layer.in_noise.square().mean().item() == pytest.approx(np.sqrt(2 / np.pi), rel=0.02)


def test_a_noisy_network_explores_and_is_still_otherwise() -> None:
    made = policy(noisy=True)
    made.bind_parameters()
    rows = ROWS.numpy()
    first = made.act(rows, {})[0].inputs
    np.testing.assert_array_equal(made.act(rows, {})[0].inputs, first)
    explored = [made.act(rows, {}, np.random.default_rng(seed))[0].inputs for seed in (0, 0, 1)]
    np.testing.assert_array_equal(explored[0], explored[1])
    assert not np.allclose(explored[0], explored[2])
    assert not np.allclose(explored[0], first)
    np.testing.assert_array_equal(made.act(rows, {})[0].inputs, first)


class OwnModel(nn.Module):
    def __init__(self, observation_space: Any, action_space: Any, outputs: int, scale: float) -> None:
        super().__init__()
        self.outputs, self.scale = nn.Linear(4, outputs), scale

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        return self.outputs(obs) * self.scale, obs[:, 0]


def test_a_custom_model_gives_the_values_itself() -> None:
    made = policy(model={"custom_model": OwnModel, "custom_model_config": {"scale": 0.0}}, num_atoms=5)
    assert made(ROWS).shape == (5, 3, 5)
    torch.testing.assert_close(made.q_values(ROWS), torch.zeros(5, 3))


def test_other_action_spaces_are_refused() -> None:
    with pytest.raises(ConfigError, match="Discrete action space"):
        q_policy(DQNConfig(), OBS, spaces.Box(-1, 1, (2,)))
