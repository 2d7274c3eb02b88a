"""Implicit Q-learning (Kostrikov et al. 2021): learning from recorded actions alone, better ones more.

Recorded steps [N] -> n-step transitions -> one step each of the state's value, the actor and the critics. No loss asks
for the value of an action that is not recorded: V(s) is an expectile of Q(s, a) over the recorded actions.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from gymnasium import spaces
from torch import Tensor

from reef.algorithms.offline import OfflineAlgorithm, OfflineTransitionsConfig
from reef.algorithms.q_critics import QCriticsConfig, QCriticsLearner
from reef.config import Scheduled, default, setting
from reef.math.td import td_targets
from reef.nn.distributions import SquashedGaussian
from reef.nn.gradients import Columns, Loss
from reef.nn.layers.encoders import EncoderWithHead
from reef.nn.q_critics import ActorWithCritics, ContinuousActorCritic, DiscreteActorCritic
from reef.spaces import Space

# Largest weight of an action, as in the paper's code: one lucky action must not outweigh all others.
MOST_WEIGHT = 100.0


class IQLConfig(OfflineTransitionsConfig, QCriticsConfig):
    """Settings of IQL."""

    algorithm: ClassVar[str] = "IQL"
    algorithm_class: ClassVar[str] = "reef.algorithms.iql:IQL"
    policy_class: ClassVar[str] = "reef.algorithms.iql:implicit_actor_critic"

    lr: Scheduled = default(3e-4)
    value_lr: Scheduled | None = setting(None, "Learning rate of the value of states; null: lr.", above=0.0)
    expectile: float = setting(
        0.7,
        "Which expectile of the recorded actions' values is the value of a state; 0.5: the mean, towards 1: the best",
        above=0.0,
        maximum=0.999,
    )
    beta: float = setting(3.0, "How much better actions count more for the actor; 0 imitates all alike", minimum=0.0)

    @property
    def has_only_custom_networks(self) -> bool:
        """False: the network of the value of states has the layers of `q_model_config` and `model`."""
        return False


class ImplicitActorCritic(ActorWithCritics):
    """An actor, critics, and a network of the values of states, which has the layers of the critics."""

    def __init__(self, config: IQLConfig, observation_space: Space, action_space: Space, **kind: Any) -> None:
        """`kind`: arguments for the actor and the critics of these actions."""
        super().__init__(config, observation_space, action_space, twin_q=config.twin_q, **kind)
        self.state_value = EncoderWithHead(self.input_layout, config.q_model_config.over(config.model), 1)

    def state_values(self, obs: Tensor) -> Tensor:
        """[N, *obs] -> [N]."""
        values: Tensor = self.state_value(obs)
        return values.squeeze(-1)


class ImplicitContinuous(ImplicitActorCritic, ContinuousActorCritic):
    """For actions in a Box with finite bounds."""


class ImplicitDiscrete(ImplicitActorCritic, DiscreteActorCritic):
    """For Discrete actions."""


def implicit_actor_critic(config: IQLConfig, observation_space: Space, action_space: Space) -> ImplicitActorCritic:
    """Build the networks for these settings."""
    if isinstance(action_space, spaces.Discrete):
        return ImplicitDiscrete(config, observation_space, action_space)
    return ImplicitContinuous(config, observation_space, action_space, box=SquashedGaussian)


class IQLLearner(QCriticsLearner):
    """One gradient step each of the state's value, the actor and the critics per batch."""

    config: IQLConfig
    policy: ImplicitActorCritic

    def setup(self) -> None:
        """Train the value of states too."""
        super().setup()
        rate = self.config.rate(self.config.value_lr)
        self.value = self.train_by(self.value_loss, self.policy.state_value, ("obs",), lr=rate, name="value")

    def step(self, minibatch: Columns) -> Loss:
        """Algorithm 1 of the paper, with the steps of the actor between those of the others."""
        minibatch = minibatch | {"q_values": self.recorded_values(minibatch)}
        value = self.value.descend(minibatch)
        actor = self.actor.descend(minibatch | {"action_weights": self.action_weights(minibatch)})
        critic = self.critics.descend(minibatch | {"targets": self.targets(minibatch)})
        if not self.config.target_network_update_freq:
            self.target.move()
        self.steps += 1
        return critic._replace(stats=critic.stats | actor.stats | value.stats)

    @torch.no_grad()
    def recorded_values(self, minibatch: Columns) -> Tensor:
        """[N] min Q'(s, a) of the recorded actions."""
        values: Tensor = self.target.network.critics(minibatch["obs"], minibatch["actions"])
        return values.amin(0)

    @torch.no_grad()
    def action_weights(self, minibatch: Columns) -> Tensor:
        """[N] exp(beta (Q'(s, a) - V(s))), how much each action counts."""
        advantages = minibatch["q_values"] - self.policy.state_values(minibatch["obs"])
        return (self.config.beta * advantages).exp().clamp(max=MOST_WEIGHT)

    @torch.no_grad()
    def targets(self, minibatch: Columns) -> Tensor:
        """[N] r + gamma^n V(s') (equation 6)."""
        values = self.policy.state_values(minibatch["next_obs"])
        return td_targets(minibatch["rewards"], minibatch["discounts"], minibatch["terminated"], values)

    def value_loss(self, outputs: Tensor, minibatch: Columns) -> Loss:
        """Squared error, weighted by `expectile` where V is too small, else by 1 - `expectile` (equation 5).

        `outputs`: V(s) [N, 1].
        """
        errors = minibatch["q_values"] - outputs.squeeze(-1)
        weights = torch.where(errors > 0, self.config.expectile, 1.0 - self.config.expectile)
        return Loss((weights * errors.square()).mean(), {"mean_v": outputs.detach().mean()})

    def actor_loss(self, outputs: Tensor, minibatch: Columns) -> Loss:
        """Minus the weighted log-likelihood of the recorded actions (equation 7); `outputs`: of the actor [N, D]."""
        logp = self.policy.dist_class(outputs).logp(minibatch["actions"])
        weights = minibatch["action_weights"]
        return Loss(-(weights * logp).mean(), {"mean_action_weight": weights.mean()})


class IQL(OfflineAlgorithm):
    """Learn from recorded episodes alone."""

    config_class = IQLConfig
    learner_class = IQLLearner
