"""The networks of SAC: an actor, Q critics and a temperature, for actions that are real numbers or indices."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable

import torch
from gymnasium import spaces
from torch import Tensor, nn

from reef.config import AlgorithmConfig, ModelConfig
from reef.errors import ConfigError
from reef.nn.distributions import Categorical, SquashedGaussian
from reef.nn.layers.encoders import Features
from reef.nn.layers.stacked import StackedLinear, StackedMLP
from reef.nn.q_critics import Actor, ActorWithCritics, ContinuousActorCritic, Critics
from reef.spaces import Layout, Space


class Temperature(nn.Module):
    """The logarithm of alpha, the weight of the entropy."""

    def __init__(self, initial_alpha: float) -> None:
        super().__init__()
        self.log_alpha = nn.Parameter(torch.tensor([math.log(initial_alpha)]))

    def forward(self) -> Tensor:
        """[1]."""
        return self.log_alpha


class SoftActorCritic(ActorWithCritics):
    """An actor, critics and a temperature."""

    temperature: Temperature

    @abstractmethod
    def expected(
        self, critics: Critics, obs: Tensor, dist_inputs: Tensor, noise: Callable[[int], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Return the smaller Q-value [N] and logp [N], expected over the actions that `dist_inputs` [N, D] stand for.

        `noise`: rows -> [rows, n] standard normal.
        """

    @property
    @abstractmethod
    def usual_entropy(self) -> float:
        """What the temperature steers to unless the settings say otherwise, in nats."""


class SoftContinuous(ContinuousActorCritic, SoftActorCritic):
    """With a squashed Gaussian actor."""

    def __init__(
        self,
        config: AlgorithmConfig,
        observation_space: Space,
        action_space: Space,
        *,
        twin_q: bool,
        initial_alpha: float,
    ) -> None:
        super().__init__(config, observation_space, action_space, twin_q=twin_q, box=SquashedGaussian)
        self.temperature = Temperature(initial_alpha)

    def expected(
        self, critics: Critics, obs: Tensor, dist_inputs: Tensor, noise: Callable[[int], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Estimated by one reparametrised action for each observation."""
        actions, logp = SquashedGaussian(dist_inputs).sample(noise(len(obs)))
        return critics(obs, actions).amin(0), logp

    @property
    def usual_entropy(self) -> float:
        """Minus the number of action elements, as in the paper."""
        return -float(self.action_layout.size)


class DiscreteCritics(Critics):
    """Q-values of all actions at once."""

    def __init__(self, layout: Layout, model: ModelConfig, actions: int, count: int) -> None:
        nn.Module.__init__(self)
        self.features = Features(layout, model)
        self.mlp = StackedMLP(self.features.out_features, *self.features.layers_behind(model), count)
        self.out = StackedLinear(self.mlp.out_features, actions, count)

    def all(self, obs: Tensor) -> Tensor:
        """[N, *obs] -> [count, N, actions]."""
        values: Tensor = self.out(self.mlp(self.features(obs)))
        return values

    def forward(self, obs: Tensor, actions: Tensor) -> Tensor:
        """[count, N], the values of the `actions` [N]."""
        values = self.all(obs)
        return values.gather(-1, actions.long().expand(len(values), -1).unsqueeze(-1)).squeeze(-1)


class SoftDiscrete(SoftActorCritic):
    """With a categorical actor and critics of all actions (Christodoulou 2019): expectations are exact sums."""

    critics: DiscreteCritics

    def __init__(
        self,
        config: AlgorithmConfig,
        observation_space: Space,
        action_space: Space,
        *,
        twin_q: bool,
        initial_alpha: float,
    ) -> None:
        super().__init__(config, observation_space, action_space)
        assert isinstance(action_space, spaces.Discrete)
        if config.model.custom_model:
            raise ConfigError(f"model.custom_model is not available yet with {config.algorithm}: leave it out.")
        self.twin_q, self.actions = twin_q, int(action_space.n)
        self.actor = Actor(self.observation_layout, config.model, self.actions)
        self.critics = DiscreteCritics(self.observation_layout, config.model, self.actions, 2 if twin_q else 1)
        self.temperature = Temperature(initial_alpha)

    def expected(
        self, critics: Critics, obs: Tensor, dist_inputs: Tensor, noise: Callable[[int], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Summed over all actions; the critics get no gradient."""
        assert isinstance(critics, DiscreteCritics)
        distribution = Categorical(dist_inputs)
        with torch.no_grad():
            values = critics.all(obs).amin(0)
        return (distribution.probs * values).sum(-1), distribution.expected_log_prob

    @property
    def usual_entropy(self) -> float:
        """A share of the entropy of random actions that a policy can have and still act well.

        The paper's share is 0.98. With two actions no policy that prefers one has as much, and alpha grows forever.
        """
        return 0.5 * math.log(self.actions)
