"""What on-policy algorithms with an actor and a critic share: settings, and advantages of a rollout."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor

from reef.batch import Rollout
from reef.config import AlgorithmConfig, setting
from reef.config.ignored import FOR_ACTOR_CRITICS, Network, ignored
from reef.learn.learner import Learner
from reef.learn.sequences import layout_of
from reef.math.gae import gae
from reef.nn.gradients import Columns
from reef.nn.policies import Policy
from reef.run.algorithm import Algorithm
from reef.run.flows.on_policy import on_policy
from reef.schedules import Schedule
from reef.types import Array, Stats


class ActorCriticConfig(AlgorithmConfig):
    """Settings of advantages and of the two losses."""

    policy_class: ClassVar[str] = "reef.nn.make:actor_critic"
    possible_memories: ClassVar[tuple[str, ...]] = ("use_lstm", "use_attention", "custom_model")

    lambda_: float = setting(1.0, "GAE's lambda: 0 = one-step advantages, 1 = Monte Carlo", minimum=0.0, maximum=1.0)
    use_gae: bool = setting(True, "Estimate advantages by GAE; False is GAE with lambda 1")
    use_critic: bool = setting(True, "Subtract the critic's values; False trains on returns without a baseline")
    vf_loss_coeff: float = setting(1.0, "Weight of the value loss", minimum=0.0)
    entropy_coeff: float | list[list[float]] = setting(
        0.0, "Weight of the entropy bonus: a number or [[step, value], ...]"
    )
    normalize_advantages: bool = setting(True, "Scale the advantages of a train batch to mean 0, deviation 1")

    @property
    def weighs_actions(self) -> bool:
        """Whether the gradient weighs each action by how likely it was when it was taken."""
        return True

    def problems(self) -> Iterator[str]:
        """Yield contradictions between these settings."""
        yield from super().problems()
        yield from self.batch_size_problems()
        if self.batch_mode == "truncate_episodes" and not self.use_critic:
            yield (
                "use_critic=False cannot bootstrap the episodes that batch_mode='truncate_episodes' cuts; "
                "set batch_mode='complete_episodes' or use_critic=True"
            )

    def ignored_settings(self, network: Network) -> Iterator[str]:
        """Yield notes for an actor and a critic; a recurrent model always shares layers between the two."""
        yield from super().ignored_settings(network)
        if not self.use_gae:
            yield from ignored(self, "without use_gae", "lambda_")
        if not self.use_critic:
            yield from ignored(self, "without use_critic", "vf_loss_coeff", "lambda_", "use_gae")
        if self.model.memories:
            reason = "with a recurrent model, whose actor and critic share all but their last layers"
            yield from ignored(self, reason, *FOR_ACTOR_CRITICS)


class ActorCriticLearner(Learner[Rollout]):
    """Computes advantages, then takes one gradient step on the whole batch unless a subclass cuts minibatches."""

    config: Any
    policy: Policy

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.passes = 1
        self.layout = layout_of(self.policy, self.config, self.device)  # rows, or sequences if there is a memory
        self.trace_decay: float = self.config.lambda_ if self.config.use_gae and self.config.use_critic else 1.0
        self.vf_loss_coeff: float = self.config.vf_loss_coeff if self.config.use_critic else 0.0
        self.entropy_coeff = torch.tensor(0.0, device=self.device)
        self.entropy_schedule = Schedule(self.config.entropy_coeff)

    def begin(self, timestep: int) -> None:
        """Set learning rate and entropy weight by their schedules."""
        super().begin(timestep)
        self.entropy_coeff.fill_(self.entropy_schedule(timestep))

    def prepare(self, batch: Rollout) -> Columns:
        """Add `advantages` and `value_targets` [N] from the current critic; keep only valid steps."""
        values, next_values, inputs = self.layout.read(batch, with_values=self.config.use_critic)
        advantages, targets = self.estimate(batch, values, next_values)
        if self.config.normalize_advantages:
            valid = advantages[batch.mask]
            advantages = (advantages - valid.mean()) / max(1e-4, float(valid.std()))
        columns = self.acted(batch) | {"advantages": advantages, "value_targets": targets}
        return inputs | self.layout.columns(batch.mask, columns)

    def estimate(
        self,
        batch: Rollout,
        values: Array,  # [T, B] of each step's observation
        next_values: Array,  # [T, B] of its true successor
    ) -> tuple[Array, Array]:
        """Advantages and value targets, both [T, B], by GAE."""
        return gae(
            batch.rewards,
            values,
            next_values,
            batch.terminated,
            batch.truncated,
            self.config.gamma,
            self.trace_decay,
            batch.mask,
        )

    def weighted_sum(self, stats: dict[str, Tensor]) -> Tensor:
        """`policy_loss`, `vf_loss` and `entropy` as one loss."""
        return stats["policy_loss"] + self.vf_loss_coeff * stats["vf_loss"] - self.entropy_coeff * stats["entropy"]

    def acted(self, batch: Rollout) -> dict[str, Array]:
        """[T, B, ...] each: what the loss reads of how the policy acted."""
        return {"actions": batch.actions}

    def minibatches(self, columns: Columns) -> Iterator[Columns]:
        """All rows or sequences, `passes` times."""
        return self.layout.minibatches(columns, sys.maxsize, self.passes, self.generator, self.rank, self.world_size)


class ActorCriticAlgorithm(Algorithm):
    """Sample a batch, improve on it, publish the weights."""

    def training_step(self) -> dict[str, Stats]:
        """One iteration of the on-policy flow."""
        return on_policy(self)
