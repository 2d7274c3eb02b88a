"""Soft actor-critic (Haarnoja et al. 2018, "Algorithms and Applications"), and for discrete actions Christodoulou 2019.

Rollout [T, B] -> n-step transitions -> replay, uniform or prioritized -> one step each of critics, actor, temperature.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from gymnasium import spaces
from torch import Tensor

from reef.algorithms.q_critics import QCriticsConfig, QCriticsLearner
from reef.algorithms.replaying import ReplayingAlgorithm
from reef.config import Scheduled, default, setting
from reef.errors import ConfigError
from reef.math.td import td_targets
from reef.nn.gradients import Columns, Loss
from reef.nn.q_critics import Critics, CustomCritics, SoftActorCritic, SoftContinuous, SoftDiscrete
from reef.replay.settings import ReplayBufferConfig
from reef.spaces import Space


class SACConfig(QCriticsConfig):
    """Settings of SAC."""

    algorithm: ClassVar[str] = "SAC"
    algorithm_class: ClassVar[str] = "reef.algorithms.sac:SAC"
    policy_class: ClassVar[str] = "reef.algorithms.sac:soft_actor_critic"

    lr: Scheduled = default(3e-4)
    replay_buffer_config: ReplayBufferConfig = default({"capacity": 1_000_000, "prioritized_replay": False})
    alpha_lr: Scheduled | None = setting(None, "Learning rate of the temperature; null: lr.", above=0.0)
    initial_alpha: float = setting(1.0, "First weight of the entropy.", above=0.0)
    target_entropy: float | Literal["auto"] = setting(
        "auto",
        "Entropy in nats that the temperature steers to; auto: minus the number of action elements, or with discrete "
        "actions half the entropy of random ones. Where a mask allows fewer actions, the same share of theirs.",
    )


def soft_actor_critic(config: SACConfig, observation_space: Space, action_space: Space) -> SoftActorCritic:
    """Build the networks for these settings; ConfigError for an entropy that no policy of the actions can have."""
    if isinstance(action_space, spaces.Discrete):
        most, wanted = math.log(action_space.n), config.target_entropy
        if wanted != "auto" and float(wanted) >= most:
            raise ConfigError(
                f"target_entropy={wanted}: random actions among {action_space.n} have an entropy of {most:.3f}, and "
                "alpha would grow without end. Set less, or 'auto'."
            )
    kind = SoftDiscrete if isinstance(action_space, spaces.Discrete) else SoftContinuous
    return kind(config, observation_space, action_space, twin_q=config.twin_q, initial_alpha=config.initial_alpha)


class SACLearner(QCriticsLearner):
    """One gradient step each of critics, actor and temperature per replayed batch."""

    config: SACConfig
    policy: SoftActorCritic

    def setup(self) -> None:
        """Train the temperature too."""
        super().setup()
        rate = self.config.rate(self.config.alpha_lr)
        self.temperature = self.train_by(self.alpha_loss, self.policy.temperature, (), lr=rate, name="alpha")

    def step(self, minibatch: Columns) -> Loss:
        """Algorithm 1 of the paper, from the critic update on."""
        critic = self.critics.descend(self.critic_columns(minibatch))
        actor = self.actor.descend(minibatch)
        temperature = self.temperature.descend({"excess": actor.rows["logp"] + self.target_entropy(minibatch["obs"])})
        if not self.config.target_network_update_freq:
            self.target.move()
        self.steps += 1
        return critic._replace(stats=critic.stats | actor.stats | temperature.stats)

    def critic_columns(self, minibatch: Columns) -> Columns:
        """What the critics learn from."""
        return minibatch | {"targets": self.targets(minibatch)}

    @torch.no_grad()
    def targets(self, minibatch: Columns) -> Tensor:
        """[N] r + gamma^n (min Q'(s', a') - alpha log pi(a'|s')), expected over a' of the current actor (eq. 3)."""
        next_obs = minibatch["next_obs"]
        values, logp = self.expected(self.target.network.critics, next_obs, self.policy.actor(next_obs))
        soft = values - self.alpha * logp
        return td_targets(minibatch["rewards"], minibatch["discounts"], minibatch["terminated"], soft)

    def actor_loss(self, outputs: Tensor, minibatch: Columns) -> Loss:
        """Expected alpha log pi(a|s) - min Q(s, a) (eq. 9); `outputs`: of the actor [N, D]."""
        values, logp = self.expected(self.policy.critics, minibatch["obs"], outputs)
        return Loss((self.alpha * logp - values).mean(), {"entropy": -logp.detach().mean()}, {"logp": logp.detach()})

    def alpha_loss(self, outputs: Tensor, minibatch: Columns) -> Loss:
        """Move the entropy towards its target (eq. 17, with log alpha as is common); `outputs`: log alpha [1].

        `excess` [N]: logp plus the target of the entropy.
        """
        loss = -(outputs * minibatch["excess"]).mean()
        return Loss(loss, {"alpha": outputs.detach().exp().squeeze()})

    def target_entropy(self, obs: Tensor) -> float | Tensor:
        """In nats: a number, or one for each observation [N, *obs]."""
        return self.policy.target_entropy(self.config.target_entropy, obs)

    @property
    def alpha(self) -> Tensor:
        """The weight of the entropy [1], detached."""
        return self.policy.temperature.log_alpha.detach().exp()

    def expected(self, critics: Critics | CustomCritics, obs: Tensor, dist_inputs: Tensor) -> tuple[Tensor, Tensor]:
        """The Q-value [N] and logp [N] of the actor's actions, with noise from the learner's own generator."""
        return self.policy.expected(critics, obs, dist_inputs, self.noise)


class SAC(ReplayingAlgorithm):
    """Sample a fragment, store it, learn from replayed transitions, publish the weights."""

    config_class = SACConfig
    learner_class = SACLearner
