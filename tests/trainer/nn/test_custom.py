"""A custom model's own loss beside that of the algorithm. What else is asked of custom models: test_policies.py."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from reef.algorithms.dqn import DQNConfig
from reef.algorithms.es import ESConfig
from reef.algorithms.ppo import PPOConfig
from reef.config import AlgorithmConfig
from reef.errors import CallbackError, ConfigError

SMALL = {"env": "CartPole-v1", "seed": 1, "train_batch_size": 64}
PPO = {"sgd_minibatch_size": 32, "num_sgd_iter": 2, "lr": 0.01}
DQN = {"num_steps_sampled_before_learning_starts": 64, "min_sample_timesteps_per_iteration": 200}


class Plain(nn.Module):
    def __init__(self, observation_space: Any, action_space: Any, num_outputs: int) -> None:
        super().__init__()
        self.head = nn.Linear(observation_space.shape[0], num_outputs + 1)
        self.beside = nn.Parameter(torch.ones(1))  # which the algorithm's loss does not read

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        outputs = self.head(obs)
        return outputs[:, :-1], outputs[:, -1]


class Supervised(Plain):
    def custom_loss(self, policy_loss: Tensor, loss_inputs: Any) -> Any:
        assert len(loss_inputs["obs"]) == len(loss_inputs["actions"])
        return policy_loss + (self.beside - 5.0).square().sum()


class Listed(Supervised):
    def custom_loss(self, policy_loss: Tensor, loss_inputs: Any) -> Any:
        return [super().custom_loss(policy_loss, loss_inputs)]


def trained(kind: type[AlgorithmConfig], model: type[nn.Module], settings: dict[str, Any]) -> tuple[float, Any]:
    """The parameter beside, after an iteration, and what the learner reports."""
    with kind.from_dict(SMALL | settings | {"model": {"custom_model": model}}).build() as algorithm:
        stats = algorithm.train()["info"]["learner"]["default_policy"]["learner_stats"]
        return float(algorithm.get_policy().get_weights()["module.beside"][0]), stats


@pytest.mark.parametrize(("kind", "settings"), [(PPOConfig, PPO), (DQNConfig, DQN)])
@pytest.mark.parametrize("model", [Supervised, Listed])
def test_the_loss_of_the_model_is_descended_too(
    kind: type[AlgorithmConfig], settings: dict[str, Any], model: type[nn.Module]
) -> None:
    beside, stats = trained(kind, model, settings)
    assert beside > 1.0
    assert stats["total_loss"] > stats["policy_loss_before_custom"] + 1
    assert trained(kind, Plain, settings)[0] == 1.0


class NoScalar(Supervised):
    def custom_loss(self, policy_loss: Tensor, loss_inputs: Any) -> Any:
        return self(loss_inputs["obs"])[1]


class NoGradient(Supervised):
    def custom_loss(self, policy_loss: Tensor, loss_inputs: Any) -> Any:
        return policy_loss.detach()


class Raises(Supervised):
    def custom_loss(self, policy_loss: Tensor, loss_inputs: Any) -> Any:
        return policy_loss + loss_inputs["labels"]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (NoScalar, r"custom_loss of model.custom_model=NoScalar returned shape \[32\], expected a scalar tensor"),
        (NoGradient, "NoGradient returned a tensor without a gradient"),
        (Raises, "custom_model=Raises raised KeyError: 'labels'"),
    ],
)
def test_a_loss_that_cannot_be_descended_is_named(model: type[nn.Module], message: str) -> None:
    with pytest.raises(CallbackError, match=message):
        trained(PPOConfig, model, PPO)


def test_evolution_refuses_a_loss() -> None:
    with pytest.raises(ConfigError, match="Supervised has custom_loss, and ES descends no loss"):
        ESConfig.from_dict({"env": "CartPole-v1", "model": {"custom_model": Supervised}}).build()
