"""Networks of an actor and Q(s, a) critics, and those for actions that are real numbers."""

from __future__ import annotations

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from reef.config import AlgorithmConfig, ModelConfig
from reef.errors import ConfigError
from reef.nn.architecture import Architecture
from reef.nn.distributions import DistributionMaker, LeafDistribution
from reef.nn.layers.encoders import Encoder, Features
from reef.nn.layers.stacked import StackedLinear, StackedMLP
from reef.nn.policies import Policy
from reef.spaces import Layout, Space


class Actor(nn.Module):
    """Observations [N, *obs] -> the inputs of the action distribution [N, D]."""

    def __init__(self, layout: Layout, model: ModelConfig, outputs: int) -> None:
        super().__init__()
        self.encoder = Encoder(layout, model)
        self.out = nn.Linear(self.encoder.out_features, outputs)

    def forward(self, obs: Tensor) -> Tensor:
        """[N, D]."""
        outputs: Tensor = self.out(self.encoder.forward_branch(0, obs))
        return outputs


class Critics(nn.Module):
    """Observations [N, *obs] and actions [N, n] -> Q-values [count, N], computed in one batched pass."""

    def __init__(self, layout: Layout, model: ModelConfig, actions: int, count: int) -> None:
        super().__init__()
        self.features = Features(layout, model)
        layers = self.features.layers_behind(model)
        self.mlp = StackedMLP(self.features.out_features + actions, *layers, count)
        self.out = StackedLinear(self.mlp.out_features, 1, count)

    def forward(self, obs: Tensor, actions: Tensor) -> Tensor:
        """[count, N]."""
        values: Tensor = self.out(self.mlp(self._inputs(obs, actions)))
        return values.squeeze(-1)

    def first(self, obs: Tensor, actions: Tensor) -> Tensor:
        """[N], those of the first critic."""
        hidden = self.mlp.forward_branch(0, self._inputs(obs, actions))
        return self.out.forward_branch(0, hidden).squeeze(-1)

    def _inputs(self, obs: Tensor, actions: Tensor) -> Tensor:
        return torch.cat([self.features(obs), actions.reshape(len(actions), -1)], dim=1)


class ActorWithCritics(Policy):
    """An actor and one or two critics, which a subclass makes; it acts by the actor alone."""

    actor: Actor
    critics: Critics
    twin_q: bool

    @property
    def acting_parameters(self) -> list[Tensor]:
        """Those of the actor."""
        return [self.flat.part(self.actor.parameters()).vector]

    def dist_inputs(self, obs: Tensor) -> Tensor:
        """[N, *obs] -> [N, D]."""
        outputs: Tensor = self.actor(obs)
        return outputs

    def architecture(self) -> Architecture:
        """Adds the number of critics."""
        architecture = super().architecture()
        architecture["settings"]["twin_q"] = self.twin_q
        return architecture


class ContinuousActorCritic(ActorWithCritics):
    """For actions in a Box with finite bounds."""

    def __init__(
        self,
        config: AlgorithmConfig,
        observation_space: Space,
        action_space: Space,
        *,
        twin_q: bool,
        box: type[LeafDistribution],
    ) -> None:
        """`box`: how it acts. Raises ConfigError unless the action space is a Box with finite bounds."""
        super().__init__(config, observation_space, action_space)
        bounded = isinstance(action_space, spaces.Box) and np.isfinite([action_space.low, action_space.high]).all()
        if not bounded:
            raise ConfigError(
                f"algorithm={config.algorithm!r} needs a Box action space with finite bounds, but the environment's is "
                f"{action_space}. Use PPO, or DQN or SAC for Discrete actions."
            )
        if config.model.custom_model:
            raise ConfigError(f"model.custom_model is not available yet with {config.algorithm}: leave it out.")
        self.twin_q = twin_q
        self.dist_class = DistributionMaker(self.action_layout, box=box)
        self.actor = Actor(self.observation_layout, config.model, self.dist_class.num_inputs)
        self.critics = Critics(self.observation_layout, config.model, self.action_layout.size, 2 if twin_q else 1)
