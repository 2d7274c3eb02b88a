"""Networks of an actor and Q(s, a) critics: for actions that are real numbers, and those of SAC, also for indices."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from reef.batch import Rollout
from reef.config import ModelConfig
from reef.errors import ConfigError
from reef.nn.architecture import Architecture
from reef.nn.custom import custom_module
from reef.nn.distributions import Categorical, DistributionMaker, LeafDistribution, SquashedGaussian
from reef.nn.layers.action_mask import ActionMask
from reef.nn.layers.encoders import EncoderWithHead, Features
from reef.nn.layers.stacked import StackedLinear, StackedMLP
from reef.nn.policies import Policy
from reef.spaces import Layout, Space
from reef.types import Array


class Critics(nn.Module):
    """Observations [N, *obs] and actions [N, n] -> Q-values [count, N], computed in one batched pass."""

    def __init__(self, layout: Layout, model: ModelConfig, actions: int, count: int, outputs: int = 1) -> None:
        super().__init__()
        self.features = Features(layout, model)
        layers = self.features.layers_behind(model)
        self.mlp = StackedMLP(self.features.out_features + actions, *layers, count)
        self.out = StackedLinear(self.mlp.out_features, outputs, count)

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


class CustomActorNetwork(nn.Module):
    """A user's module that maps observations to (distribution inputs [N, D], anything)."""

    def __init__(self, module: nn.Module, mask: ActionMask | None) -> None:
        """`module`: from `custom_module`."""
        super().__init__()
        self.module, self.mask = module, mask

    def forward(self, obs: Tensor) -> Tensor:
        """[N, D]."""
        outputs: Tensor = self.module(obs if self.mask is None else self.mask.without(obs))[0]
        return outputs if self.mask is None else self.mask(obs, outputs)


class CustomCritics(nn.Module):
    """A user's modules, one for each critic, that map observations and actions to (Q-values [N], anything)."""

    def __init__(self, modules: list[nn.Module]) -> None:
        """`modules`: from `custom_module`."""
        super().__init__()
        self.critics = nn.ModuleList(modules)

    def forward(self, obs: Tensor, actions: Tensor) -> Tensor:
        """[count, N]."""
        return torch.stack([self._values(critic, obs, actions) for critic in self.critics])

    def first(self, obs: Tensor, actions: Tensor) -> Tensor:
        """[N], those of the first critic."""
        return self._values(self.critics[0], obs, actions)

    def _values(self, critic: nn.Module, obs: Tensor, actions: Tensor) -> Tensor:
        values: Tensor = critic(obs, actions.reshape(len(actions), -1))[0]
        return values.reshape(-1)


class ActorWithCritics(Policy):
    """An actor and critics, which a subclass makes; it acts by the actor alone."""

    actor: EncoderWithHead | CustomActorNetwork
    critics: Critics | CustomCritics

    def __init__(self, config: Any, observation_space: Space, action_space: Space, *, twin_q: bool) -> None:
        """Raises ConfigError for `model.custom_model`: actor and critics have one each."""
        super().__init__(config, observation_space, action_space)
        if custom := config.model.custom_model:
            raise ConfigError(
                f"model.custom_model={custom!r}: {config.algorithm} has an actor and critics, which read and return "
                "other things. Set policy_model_config.custom_model and q_model_config.custom_model."
            )
        self.spaces, self.parts = (observation_space, action_space), (config.policy_model_config, config.q_model_config)
        self.twin_q, self.num_critics = twin_q, 2 if twin_q else 1

    def make_actor(self, own: Any, outputs: int) -> EncoderWithHead | CustomActorNetwork:
        """From `policy_model_config`, and for the rest `model`."""
        if own.custom_model is None:
            return EncoderWithHead(self.input_layout, own.over(self.config.model), outputs, self.action_mask)
        return CustomActorNetwork(self.custom("policy_model_config", outputs), self.action_mask)

    def custom(self, settings: str, outputs: int, actions: int = 0) -> nn.Module:
        """One module of the `custom_model` of these settings."""
        module = custom_module(self.config, *self.spaces, outputs, critic=False, settings=settings, actions=actions)
        if hasattr(module, "custom_loss"):
            raise ConfigError(
                f"{settings}.custom_model={type(module).__name__} has custom_loss, which belongs to algorithms with "
                "one loss, such as PPO and DQN. Leave it out."
            )
        return module

    @property
    def acting_parameters(self) -> list[Tensor]:
        """Those of the actor; all, where workers estimate values."""
        acting = self.flat if self.config.workers_estimate_values else self.flat.part(self.actor.parameters())
        return [acting.vector]

    def dist_inputs(self, obs: Tensor) -> Tensor:
        """[N, *obs] -> [N, D]."""
        outputs: Tensor = self.actor(obs)
        return outputs

    def joint_values(self, critics: Critics | CustomCritics, obs: Tensor, actions: Tensor) -> Tensor:
        """[N], one Q-value from those of all critics: the smallest."""
        values: Tensor = critics(obs, actions)
        return values.amin(0)

    def architecture(self) -> Architecture:
        """Adds the number of critics, and how actor and critics differ from `model`."""
        architecture = super().architecture()
        architecture["settings"]["twin_q"] = self.twin_q
        for own in self.parts:
            architecture["settings"] |= {f"{own.prefix}{key}": value for key, value in own.layers().items()}
        return architecture


class ContinuousActorCritic(ActorWithCritics):
    """For actions in a Box with finite bounds."""

    def __init__(
        self,
        config: Any,
        observation_space: Space,
        action_space: Space,
        *,
        twin_q: bool,
        box: type[LeafDistribution],
    ) -> None:
        """`box`: how it acts. Raises ConfigError unless the action space is a Box with finite bounds."""
        super().__init__(config, observation_space, action_space, twin_q=twin_q)
        bounded = isinstance(action_space, spaces.Box) and np.isfinite([action_space.low, action_space.high]).all()
        if not bounded:
            others = "BC or MARWIL" if config.reads_records else "PPO, or DQN or SAC for Discrete actions"
            raise ConfigError(
                f"algorithm={config.algorithm!r} needs a Box action space with finite bounds, but the environment's is "
                f"{action_space}. Use {others}."
            )
        self.dist_class = DistributionMaker(self.action_layout, box=box)
        self.actor = self.make_actor(config.policy_model_config, self.dist_class.num_inputs)
        self.critics = self.make_critics(config.q_model_config, self.action_layout.size)

    def make_critics(self, own: Any, actions: int) -> Critics | CustomCritics:
        """From `q_model_config`, and for the rest `model`; `actions`: the number of their elements."""
        if own.custom_model is None:
            return Critics(self.observation_layout, own.over(self.config.model), actions, self.num_critics)
        return CustomCritics([self.custom("q_model_config", 1, actions) for _ in range(self.num_critics)])

    def state_values(self, obs: Tensor) -> Tensor:
        """[N, *obs] -> [N], the values of acting without noise, as `joint_values`."""
        actions = torch.tanh(self.actor(obs)[:, : self.action_layout.size])
        return self.joint_values(self.critics, obs, actions)

    def acted_values(self, rollout: Rollout) -> tuple[Array, Array]:
        """[T, B] each: the `joint_values` of the actions taken, and of those of the actor."""
        obs = torch.as_tensor(rollout.obs, device=self.device).flatten(0, 1)
        actions = torch.as_tensor(rollout.actions, device=self.device).flatten(0, 1)
        found = self.joint_values(self.critics, obs, actions), self.state_values(obs)
        q_values, values = (values.cpu().numpy().reshape(rollout.shape) for values in found)
        return q_values, values


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

    def __init__(
        self, config: Any, observation_space: Space, action_space: Space, *, initial_alpha: float, **kind: Any
    ) -> None:
        """`kind`: arguments for the actor and the critics of these actions."""
        super().__init__(config, observation_space, action_space, **kind)
        self.temperature = Temperature(initial_alpha)

    @abstractmethod
    def expected(
        self, critics: Critics | CustomCritics, obs: Tensor, dist_inputs: Tensor, noise: Callable[[int], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """The `joint_values` [N] and logp [N], expected over the actions that `dist_inputs` [N, D] stand for.

        `noise`: rows -> [rows, n] standard normal.
        """

    @abstractmethod
    def target_entropy(self, given: float | str, obs: Tensor) -> float | Tensor:
        """What the temperature steers to, in nats: a number, or one for each row; `given`: the setting."""


class SoftContinuous(SoftActorCritic, ContinuousActorCritic):
    """With a squashed Gaussian actor."""

    def __init__(self, config: Any, observation_space: Space, action_space: Space, **kind: Any) -> None:
        super().__init__(config, observation_space, action_space, box=SquashedGaussian, **kind)

    def expected(
        self, critics: Critics | CustomCritics, obs: Tensor, dist_inputs: Tensor, noise: Callable[[int], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Estimated by one reparametrised action for each observation."""
        actions, logp = SquashedGaussian(dist_inputs).sample(noise(len(obs)))
        return self.joint_values(critics, obs, actions), logp

    def target_entropy(self, given: float | str, obs: Tensor) -> float:
        """`given`, or minus the number of action elements, as in the paper."""
        return -float(self.action_layout.size) if given == "auto" else float(given)


class DiscreteCritics(Critics):
    """Q-values of all actions at once."""

    def __init__(self, layout: Layout, model: ModelConfig, actions: int, count: int) -> None:
        super().__init__(layout, model, 0, count, outputs=actions)

    def all(self, obs: Tensor) -> Tensor:
        """[N, *obs] -> [count, N, actions]."""
        values: Tensor = self.out(self.mlp(self.features(obs)))
        return values

    def forward(self, obs: Tensor, actions: Tensor) -> Tensor:
        """[count, N], the values of the `actions` [N]."""
        return _of_actions(self.all(obs), actions)


class CustomDiscreteCritics(CustomCritics):
    """A user's modules, one for each critic, that map observations to (Q-values of all actions [N, n], anything)."""

    def __init__(self, modules: list[nn.Module], mask: ActionMask | None) -> None:
        """`modules`: from `custom_module`."""
        super().__init__(modules)
        self.mask = mask

    def all(self, obs: Tensor) -> Tensor:
        """[N, *obs] -> [count, N, actions]."""
        read = obs if self.mask is None else self.mask.without(obs)
        return torch.stack([critic(read)[0] for critic in self.critics])

    def forward(self, obs: Tensor, actions: Tensor) -> Tensor:
        """[count, N], the values of the `actions` [N]."""
        return _of_actions(self.all(obs), actions)


def _of_actions(values: Tensor, actions: Tensor) -> Tensor:
    """[count, N, actions] and [N] -> [count, N]."""
    return values.gather(-1, actions.long().expand(len(values), -1).unsqueeze(-1)).squeeze(-1)


class DiscreteActorCritic(ActorWithCritics):
    """For Discrete actions: a categorical actor, and critics of all actions."""

    critics: DiscreteCritics | CustomDiscreteCritics

    def __init__(self, config: Any, observation_space: Space, action_space: Space, *, twin_q: bool) -> None:
        super().__init__(config, observation_space, action_space, twin_q=twin_q)
        assert isinstance(action_space, spaces.Discrete)
        self.actions = int(action_space.n)
        self.actor = self.make_actor(config.policy_model_config, self.actions)
        self.critics = self.make_critics(config.q_model_config)

    def make_critics(self, own: Any) -> DiscreteCritics | CustomDiscreteCritics:
        """From `q_model_config`, and for the rest `model`."""
        if own.custom_model is None:
            return DiscreteCritics(self.input_layout, own.over(self.config.model), self.actions, self.num_critics)
        modules = [self.custom("q_model_config", self.actions) for _ in range(self.num_critics)]
        return CustomDiscreteCritics(modules, self.action_mask)


class SoftDiscrete(SoftActorCritic, DiscreteActorCritic):
    """Christodoulou 2019: expectations over actions are exact sums."""

    def expected(
        self, critics: Critics | CustomCritics, obs: Tensor, dist_inputs: Tensor, noise: Callable[[int], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Summed over all actions; the critics get no gradient."""
        assert isinstance(critics, DiscreteCritics | CustomDiscreteCritics)
        distribution = Categorical(dist_inputs)
        with torch.no_grad():
            values = critics.all(obs).amin(0)
        return (distribution.probs * values).sum(-1), distribution.expected_log_prob

    def target_entropy(self, given: float | str, obs: Tensor) -> float | Tensor:
        """`given`, or a share of the entropy of random actions that a policy can have and still act well.

        The paper's share is 0.98. With two actions no policy that prefers one has as much, and alpha grows forever.
        Where a mask allows fewer actions it is the same share of their entropy.
        """
        most = math.log(self.actions)
        wanted = 0.5 * most if given == "auto" else float(given)
        if self.action_mask is None or self.actions == 1:
            return wanted
        return wanted / most * self.action_mask.count(obs).log()
