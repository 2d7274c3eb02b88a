"""Soft actor-critic (Haarnoja et al. 2018, "Algorithms and Applications") for continuous actions.

Rollout [T, B] -> n-step transitions -> replay, uniform or prioritized -> one step each of critics, actor, temperature.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from reef.algorithms.replaying import OffPolicyConfig, ReplayingAlgorithm, ReplayingLearner
from reef.batch import Transitions
from reef.config import ModelConfig, Scheduled, default, setting
from reef.config.ignored import FOR_ACTOR_CRITICS, Network, ignored, ignored_with
from reef.learn.minibatches import transition_columns
from reef.math.td import td_targets
from reef.nn.distributions import SquashedGaussian
from reef.nn.gradients import Columns, Loss
from reef.nn.soft_actor_critic import SoftActorCritic
from reef.nn.targets import Target
from reef.replay.settings import ReplayBufferConfig
from reef.spaces import Space


class SACConfig(OffPolicyConfig):
    """Settings of SAC."""

    algorithm: ClassVar[str] = "SAC"
    algorithm_class: ClassVar[str] = "reef.algorithms.sac:SAC"
    policy_class: ClassVar[str] = "reef.algorithms.sac:soft_actor_critic"

    lr: Scheduled = default(3e-4)
    train_batch_size: int = default(256)
    rollout_fragment_length: int | Literal["auto"] = default(1)
    min_sample_timesteps_per_iteration: int | None = default(1000)
    num_steps_sampled_before_learning_starts: int = default(1500)
    model: ModelConfig = default({"fcnet_activation": "relu"})
    replay_buffer_config: ReplayBufferConfig = default({"capacity": 1_000_000, "prioritized_replay": False})
    twin_q: bool = setting(True, "Train two critics and use the smaller value.")
    actor_lr: float | list[list[float]] | None = setting(None, "Learning rate of the actor; null: lr.")
    critic_lr: float | list[list[float]] | None = setting(None, "Learning rate of the critics; null: lr.")
    alpha_lr: float | list[list[float]] | None = setting(None, "Learning rate of the temperature; null: lr.")
    initial_alpha: float = setting(1.0, "First weight of the entropy.", above=0.0)
    target_entropy: float | Literal["auto"] = setting(
        "auto", "Entropy in nats that the temperature steers to; auto: minus the number of action elements."
    )
    tau: float = setting(
        5e-3, "Fraction of the critics that each update copies to their targets.", above=0.0, maximum=1.0
    )
    target_network_update_freq: int = setting(
        0,
        "Environment steps between updates of the targets; 0: one after every gradient step.",
        minimum=0,
        unit="steps",
    )

    def problems(self) -> Iterator[str]:
        """Yield contradictions between these settings."""
        yield from super().problems()
        if not self.normalize_actions:
            yield "normalize_actions=False: the actor's actions lie between -1 and 1. Leave it at True."
        if self.torch_compile_learner:
            yield "torch_compile_learner=True: not available yet with SAC. Leave it at False."

    def ignored_settings(self, network: Network) -> Iterator[str]:
        """Yield notes for networks whose actor and critics differ from PPO's."""
        if network.has_image is not None:
            yield from ignored_with(self, network.has_image, "model.fcnet_hiddens")
            yield from ignored(self, "on an actor and critics of its own kind", *FOR_ACTOR_CRITICS)


def soft_actor_critic(config: SACConfig, observation_space: Space, action_space: Space) -> SoftActorCritic:
    """Build the networks for these settings."""
    return SoftActorCritic(
        config, observation_space, action_space, twin_q=config.twin_q, initial_alpha=config.initial_alpha
    )


class SACLearner(ReplayingLearner):
    """One gradient step each of critics, actor and temperature per replayed batch."""

    config: SACConfig
    policy: SoftActorCritic

    def setup(self) -> None:
        """Train three parts of the policy by three losses."""
        policy, config = self.policy, self.config

        def rate(own: Any) -> Any:
            return config.lr if own is None else own

        observed = ("obs",)
        self.critics = self.train_by(
            self.critic_loss, policy.critics, (*observed, "actions"), lr=rate(config.critic_lr), name="critic"
        )
        self.actor = self.train_by(self.actor_loss, policy.actor, observed, lr=rate(config.actor_lr), name="actor")
        self.temperature = self.train_by(
            self.alpha_loss, policy.temperature, (), lr=rate(config.alpha_lr), name="alpha"
        )
        self.target = Target(policy, tau=config.tau, period=config.target_network_update_freq)
        auto = -float(policy.action_layout.size)
        self.target_entropy = auto if config.target_entropy == "auto" else float(config.target_entropy)

    def begin(self, timestep: int) -> None:
        """Set learning rates by their schedules; update the targets when they are due."""
        super().begin(timestep)
        if self.config.target_network_update_freq:
            self.target.follow(timestep)

    def prepare(self, batch: Transitions) -> Columns:
        """Return the columns of the replayed transitions."""
        return transition_columns(batch, self.device)

    def step(self, minibatch: Columns) -> Loss:
        """Algorithm 1 of the paper, from the critic update on."""
        critic = self.critics.descend(minibatch | {"targets": self.targets(minibatch)})
        actor = self.actor.descend(minibatch)
        temperature = self.temperature.descend({"logp": actor.rows["logp"]})
        if not self.config.target_network_update_freq:
            self.target.move()
        stats = critic.stats | actor.stats | temperature.stats
        return Loss(critic.value, stats, critic.rows)

    @torch.no_grad()
    def targets(self, minibatch: Columns) -> Tensor:
        """[N] r + gamma^n (min Q'(s', a') - alpha log pi(a'|s')), with a' sampled from the current actor (eq. 3)."""
        next_obs = minibatch["next_obs"]
        actions, logp = self.sample(self.policy.actor(next_obs))
        values = self.target.network.critics(next_obs, actions).amin(0) - self.alpha * logp
        return td_targets(minibatch["rewards"], minibatch["discounts"], minibatch["terminated"], values)

    def critic_loss(self, outputs: Tensor, minibatch: Columns) -> Loss:
        """Half the squared error of each critic (eq. 5), weighted if replay is prioritized; `outputs`: [critics, N]."""
        errors = outputs - minibatch["targets"]
        losses = 0.5 * errors.square().sum(0)
        weights = minibatch.get("weights")
        loss = losses.mean() if weights is None else (losses * weights).mean()
        stats = {"mean_q": outputs.detach().mean(), "mean_td_error": errors.detach().mean()}
        return Loss(loss, stats, {"td_errors": errors.detach().abs().mean(0)})

    def actor_loss(self, outputs: Tensor, minibatch: Columns) -> Loss:
        """Alpha log pi(a|s) - min Q(s, a) of reparametrised actions (eq. 9); `outputs`: actor outputs [N, 2 n]."""
        actions, logp = self.sample(outputs)
        values = self.policy.critics(minibatch["obs"], actions).amin(0)
        return Loss((self.alpha * logp - values).mean(), {"entropy": -logp.detach().mean()}, {"logp": logp.detach()})

    def alpha_loss(self, outputs: Tensor, minibatch: Columns) -> Loss:
        """Move the entropy towards its target (eq. 17, with log alpha as is common); `outputs`: log alpha [1]."""
        loss = -(outputs * (minibatch["logp"] + self.target_entropy)).mean()
        return Loss(loss, {"alpha": outputs.detach().exp().squeeze()})

    @property
    def alpha(self) -> Tensor:
        """The weight of the entropy [1], detached."""
        return self.policy.temperature.log_alpha.detach().exp()

    def sample(self, dist_inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Sample actions [N, n] and their logp [N] with noise from the learner's own generator."""
        rows, size = len(dist_inputs), self.policy.action_layout.size
        # All learners draw the same noise and each uses its part, so that several learners compute what one would.
        noise = torch.randn(rows * self.world_size, size, generator=self.generator)
        return SquashedGaussian(dist_inputs).sample(noise[rows * self.rank :][:rows].to(self.device))


class SAC(ReplayingAlgorithm):
    """Sample a fragment, store it, learn from replayed transitions, publish the weights."""

    config_class = SACConfig
    learner_class = SACLearner
