"""Deep deterministic policy gradient (Lillicrap et al. 2016), with the additions of TD3 (Fujimoto et al. 2018).

Rollout [T, B] -> n-step transitions -> replay, uniform or prioritized -> a step of the critics, and of the actor once
every `policy_delay` of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor

from reef.algorithms.q_critics import QCriticsConfig, QCriticsLearner
from reef.algorithms.replaying import ReplayingAlgorithm
from reef.config import ModelConfig, Scheduled, default, setting
from reef.config.ignored import Network, ignored
from reef.math.td import huber, td_targets
from reef.nn.distributions import Squashed
from reef.nn.gradients import Columns, Loss
from reef.nn.q_critics import ContinuousActorCritic
from reef.replay.settings import ReplayBufferConfig
from reef.spaces import Space


class DDPGConfig(QCriticsConfig):
    """Settings of DDPG."""

    algorithm: ClassVar[str] = "DDPG"
    algorithm_class: ClassVar[str] = "reef.algorithms.ddpg:DDPG"
    policy_class: ClassVar[str] = "reef.algorithms.ddpg:deterministic_actor_critic"

    lr: Scheduled = default(1e-3)
    model: ModelConfig = default({"fcnet_hiddens": [400, 300], "fcnet_activation": "relu"})
    replay_buffer_config: ReplayBufferConfig = default({"capacity": 50_000})
    exploration_config: dict[str, Any] = default({"type": "OrnsteinUhlenbeckNoise"})
    tau: float = default(2e-3)
    twin_q: bool = default(False)
    policy_delay: int = setting(
        1, "Steps of the critics for each step of the actor and of the targets.", minimum=1, unit="steps"
    )
    smooth_target_policy: bool = setting(False, "Add clipped normal noise to the actions of the target actor.")
    target_noise: float = setting(0.2, "Standard deviation of that noise; actions reach from -1 to 1.", minimum=0.0)
    target_noise_clip: float = setting(0.5, "Bound of that noise.", minimum=0.0)
    use_huber: bool = setting(False, "Huber loss of the critics in place of half the square.")
    huber_threshold: float = setting(1.0, "Error from which the Huber loss is linear.", above=0.0)
    l2_reg: float = setting(
        1e-6, "Weight of half the squared weights of critics and actor in their losses.", minimum=0.0
    )

    def ignored_settings(self, network: Network) -> Iterator[str]:
        """Yield notes for the noise and the loss that are not used."""
        yield from super().ignored_settings(network)
        if not self.smooth_target_policy:
            yield from ignored(self, "without smooth_target_policy", "target_noise", "target_noise_clip")
        if not self.use_huber:
            yield from ignored(self, "without use_huber", "huber_threshold")


def deterministic_actor_critic(
    config: DDPGConfig, observation_space: Space, action_space: Space
) -> ContinuousActorCritic:
    """Build the networks for these settings."""
    return ContinuousActorCritic(config, observation_space, action_space, twin_q=config.twin_q, box=Squashed)


class DDPGLearner(QCriticsLearner):
    """One gradient step of the critics per replayed batch; one of the actor every `policy_delay` steps."""

    config: DDPGConfig

    def step(self, minibatch: Columns) -> Loss:
        """Algorithm 1 of both papers, from the critic update on."""
        critic = self.critics.descend(minibatch | {"targets": self.targets(minibatch)})
        self.steps += 1
        if self.steps % self.config.policy_delay:
            return critic
        actor = self.actor.descend(minibatch)
        if not self.config.target_network_update_freq:
            self.target.move()
        return critic._replace(stats=critic.stats | actor.stats)

    @torch.no_grad()
    def targets(self, minibatch: Columns) -> Tensor:
        """[N] r + gamma^n min Q'(s', a'), with the target actor's a' plus clipped noise (Fujimoto et al., eq. 14)."""
        network, next_obs = self.target.network, minibatch["next_obs"]
        actions = torch.tanh(network.actor(next_obs))
        if self.config.smooth_target_policy:
            bound = self.config.target_noise_clip
            noise = (self.config.target_noise * self.noise(len(actions))).clamp(-bound, bound)
            actions = (actions + noise).clamp(-1.0, 1.0)
        values = network.critics(next_obs, actions).amin(0)
        return td_targets(minibatch["rewards"], minibatch["discounts"], minibatch["terminated"], values)

    def critic_loss(self, outputs: Tensor, minibatch: Columns) -> Loss:
        """As in `QCriticsLearner`, with the squared weights."""
        loss = super().critic_loss(outputs, minibatch)
        return loss._replace(value=loss.value + self.squared_weights(self.policy.critics))

    def critic_error(self, errors: Tensor) -> Tensor:
        """Half the square, or Huber's loss."""
        if not self.config.use_huber:
            return super().critic_error(errors)
        return huber(errors, torch.zeros_like(errors), self.config.huber_threshold)

    def actor_loss(self, outputs: Tensor, minibatch: Columns) -> Loss:
        """-Q(s, tanh(outputs)) of the first critic (Lillicrap et al., eq. 6); `outputs`: of the actor [N, n]."""
        value = self.policy.critics.first(minibatch["obs"], torch.tanh(outputs)).mean()
        return Loss(self.squared_weights(self.policy.actor) - value, {})

    def squared_weights(self, network: torch.nn.Module) -> Tensor | float:
        """Half the sum of the squared weights, without biases, times `l2_reg`."""
        if not self.config.l2_reg:
            return 0.0
        squares = [each.square().sum() for name, each in network.named_parameters() if name.endswith("weight")]
        return 0.5 * self.config.l2_reg * sum(squares, torch.zeros((), device=self.device))


class DDPG(ReplayingAlgorithm):
    """Sample a fragment, store it, learn from replayed transitions, publish the weights."""

    config_class = DDPGConfig
    learner_class = DDPGLearner
