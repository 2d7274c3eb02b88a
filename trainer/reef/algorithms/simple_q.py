"""Q-learning with replay and a target network (Mnih et al. 2015), without the extensions that DQN adds to it.

Rollout [T, B] -> n-step transitions -> replay -> TD errors against a target network -> new weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from reef.algorithms.replaying import OffPolicyConfig, ReplayingAlgorithm, ReplayingLearner
from reef.batch import Transitions
from reef.config import Scheduled, default, setting
from reef.config.ignored import Network, ignored_without_actor_critic
from reef.learn.learner import Update
from reef.learn.minibatches import transition_columns
from reef.math.td import huber, td_targets, weighted_mean
from reef.nn.dueling import QPolicy
from reef.nn.gradients import Columns, Loss
from reef.nn.targets import Target
from reef.replay.settings import ReplayBufferConfig
from reef.spaces import Space


class QLearningConfig(OffPolicyConfig):
    """Settings of algorithms that learn the values of discrete actions."""

    lr: Scheduled = default(5e-4)
    grad_clip: float | None = default(40.0)
    train_batch_size: int = default(32)
    rollout_fragment_length: int | Literal["auto"] = default(4)
    min_sample_timesteps_per_iteration: int | None = default(1000)
    exploration_config: dict[str, Any] = default(
        {"type": "EpsilonGreedy", "initial_epsilon": 1.0, "final_epsilon": 0.02, "epsilon_timesteps": 10_000}
    )
    target_network_update_freq: int = setting(
        500, "Environment steps between updates of the target network.", minimum=1, unit="steps"
    )
    tau: float = setting(1.0, "Fraction of the online weights that each update copies.", above=0.0, maximum=1.0)

    def ignored_settings(self, network: Network) -> Iterator[str]:
        """Yield notes for Q-networks."""
        reason = "on Q-values, which have neither an actor nor a critic"
        yield from ignored_without_actor_critic(self, network, reason)


class SimpleQConfig(QLearningConfig):
    """Settings of SimpleQ."""

    algorithm: ClassVar[str] = "SimpleQ"
    algorithm_class: ClassVar[str] = "reef.algorithms.simple_q:SimpleQ"
    policy_class: ClassVar[str] = "reef.algorithms.simple_q:q_policy"

    replay_buffer_config: ReplayBufferConfig = default({"prioritized_replay": False})


def q_policy(config: SimpleQConfig, observation_space: Space, action_space: Space) -> QPolicy:
    """Build the network: the model's layers, and an output for each action."""
    return QPolicy(config, observation_space, action_space)


class SimpleQLearner(ReplayingLearner):
    """Learns from TD errors against a target network, by the Huber loss."""

    config: QLearningConfig
    policy: QPolicy

    def setup(self) -> None:
        """Train the whole network by `loss`; make the target network."""
        super().setup()
        self.target = Target(self.policy, tau=self.config.tau, period=self.config.target_network_update_freq)

    def begin(self, timestep: int) -> None:
        """Update the target network when it is due."""
        super().begin(timestep)
        self.target.follow(timestep)

    def prepare(self, batch: Transitions) -> Columns:
        """Return the columns for the loss; all targets are computed at once, with the current networks."""
        tensors = transition_columns(batch, self.device)
        with torch.no_grad():
            targets = self.targets(*(tensors.pop(name) for name in ("rewards", "next_obs", "terminated", "discounts")))
        return tensors | {"targets": targets}

    def targets(self, rewards: Tensor, next_obs: Tensor, terminated: Tensor, discounts: Tensor) -> Tensor:
        """[N] r + gamma^n max Q'(s', a')."""
        return td_targets(rewards, discounts, terminated, self.target.network.q_values(next_obs).amax(-1))

    def loss(self, outputs: Tensor, minibatch: Columns) -> Loss:
        """Mean Huber loss of the Q-values [N, A] of the actions taken, weighted if replay is prioritized."""
        chosen, targets = take_actions(outputs, minibatch["actions"]), minibatch["targets"]
        loss = weighted_mean(huber(chosen, targets), minibatch.get("weights"))
        return Loss(loss, {"mean_q": chosen.detach().mean()}, {"td_errors": chosen.detach() - targets})

    def update(self, batch: Transitions, timestep: int) -> Update:
        """Update the policy; the rows in the result include "td_errors"."""
        stats, rows = super().update(batch, timestep)
        return Update({"mean_td_error": float(rows["td_errors"].mean())} | stats, rows)


def take_actions(
    logits: Tensor,  # [N, A] or [N, A, atoms]
    actions: Tensor,  # [N]
) -> Tensor:  # [N] or [N, atoms]
    """Select the entries of the given actions."""
    if logits.dim() == 2:
        return logits.gather(1, actions[:, None]).squeeze(1)
    return logits[torch.arange(len(actions), device=actions.device), actions]


class SimpleQ(ReplayingAlgorithm):
    """Sample a fragment, store it, learn from replayed transitions, publish the weights."""

    config_class = SimpleQConfig
    learner_class = SimpleQLearner
