"""Proximal policy optimisation (Schulman et al. 2017), with clipping and an adaptive KL penalty.

Rollout [T, B] -> advantages by GAE -> several passes of minibatches through the clipped surrogate -> new weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from reef.batch import Rollout
from reef.config import AlgorithmConfig, ModelConfig, default, setting
from reef.config.ignored import FOR_ACTOR_CRITICS, Network, ignored
from reef.learn.learner import Learner
from reef.learn.sequences import layout_of
from reef.math.gae import gae
from reef.math.surrogate import clipped_error, clipped_surrogate
from reef.nn.gradients import Columns, Loss
from reef.nn.policies import Policy
from reef.run.algorithm import Algorithm
from reef.run.flows import on_policy
from reef.schedules import Schedule
from reef.types import State, Stats


class PPOConfig(AlgorithmConfig):
    """Settings of PPO."""

    algorithm: ClassVar[str] = "PPO"
    algorithm_class: ClassVar[str] = "reef.algorithms.ppo:PPO"
    policy_class: ClassVar[str] = "reef.nn.make:actor_critic"
    may_be_recurrent: ClassVar[bool] = True

    lr: float | list[list[float]] = default(5e-5)
    train_batch_size: int = default(4000)
    rollout_fragment_length: int | Literal["auto"] = default("auto")
    model: ModelConfig = default({"vf_share_layers": False})
    lambda_: float = setting(1.0, "GAE's lambda: 0 = one-step advantages, 1 = Monte Carlo", minimum=0.0, maximum=1.0)
    use_gae: bool = setting(True, "Estimate advantages by GAE; False is GAE with lambda 1")
    use_critic: bool = setting(True, "Subtract the critic's values; False trains on returns without a baseline")
    sgd_minibatch_size: int = setting(128, "Steps in one minibatch, over all learners", minimum=1)
    num_sgd_iter: int = setting(30, "Passes over each train batch", minimum=1)
    clip_param: float = setting(0.3, "The likelihood ratio is clipped to 1 +- this (eq. 7)", above=0.0)
    kl_coeff: float = setting(0.2, "First weight of the KL penalty (eq. 8); 0 switches it off", minimum=0.0)
    kl_target: float = setting(0.01, "KL in nats that the adaptive penalty steers to", above=0.0)
    vf_loss_coeff: float = setting(1.0, "Weight of the value loss", minimum=0.0)
    vf_clip_param: float | None = setting(
        10.0,
        "Squared value errors above this give no gradient: fit it to the scale of rewards, or None",
        above=0.0,
    )
    entropy_coeff: float | list[list[float]] = setting(
        0.0, "Weight of the entropy bonus: a number or [[step, value], ...]"
    )
    normalize_advantages: bool = setting(True, "Scale the advantages of a train batch to mean 0, deviation 1")

    def problems(self) -> Iterator[str]:
        """Yield contradictions between these settings."""
        yield from super().problems()
        yield from self.batch_size_problems()
        if self.sgd_minibatch_size > self.total_train_batch_size:
            yield (
                f"sgd_minibatch_size={self.sgd_minibatch_size} is larger than "
                f"train_batch_size={self.total_train_batch_size}; lower the first or raise the second"
            )
        if self.model.memories and self.sgd_minibatch_size < self.model.max_seq_len * max(self.num_learner_workers, 1):
            yield (
                f"sgd_minibatch_size={self.sgd_minibatch_size} holds no sequence of model.max_seq_len="
                f"{self.model.max_seq_len} steps for each learner; raise the first or lower the second"
            )
        if self.sgd_minibatch_size % max(self.num_learner_workers, 1):
            yield (
                f"sgd_minibatch_size={self.sgd_minibatch_size} cannot be shared evenly by "
                f"num_learner_workers={self.num_learner_workers}; use a multiple of it"
            )
        if self.batch_mode == "truncate_episodes" and not self.use_critic:
            yield (
                "use_critic=False cannot bootstrap the episodes that batch_mode='truncate_episodes' cuts; "
                "set batch_mode='complete_episodes' or use_critic=True"
            )

    def ignored_settings(self, network: Network) -> Iterator[str]:
        """Yield notes for an actor and a critic; a recurrent model always shares layers between the two."""
        yield from super().ignored_settings(network)
        if self.model.memories:
            reason = "with a recurrent model, whose actor and critic share all but their last layers"
            yield from ignored(self, reason, *FOR_ACTOR_CRITICS)


class PPOLearner(Learner[Rollout]):
    """Clipped surrogate, clipped value error, entropy bonus, KL penalty."""

    config: PPOConfig
    policy: Policy

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # rows or, if the policy is recurrent, sequences
        self.layout = layout_of(self.policy, self.config, self.device)
        self.kl_coeff = torch.tensor(self.config.kl_coeff, device=self.device)
        self.entropy_coeff = torch.tensor(0.0, device=self.device)
        self.entropy_schedule = Schedule(self.config.entropy_coeff)

    @property
    def minibatch_size(self) -> int:
        """Rows per gradient step, over all learners."""
        return self.config.sgd_minibatch_size

    def begin(self, timestep: int) -> None:
        """Set learning rate and entropy weight by their schedules."""
        super().begin(timestep)
        self.entropy_coeff.fill_(self.entropy_schedule(timestep))

    def prepare(self, batch: Rollout) -> Columns:
        """Add `advantages` and `value_targets` [N] from the current critic; keep only valid steps."""
        values, next_values, inputs = self.layout.read(batch, with_values=self.config.use_critic)
        advantages, targets = gae(
            batch.rewards,
            values,
            next_values,
            batch.terminated,
            batch.truncated,
            self.config.gamma,
            self.config.lambda_ if self.config.use_gae else 1.0,
            batch.mask,
        )
        if self.config.normalize_advantages:
            valid = advantages[batch.mask]
            advantages = (advantages - valid.mean()) / max(1e-4, float(valid.std()))
        columns = {
            "actions": batch.actions,
            "action_logp": batch.extras["action_logp"],
            "action_dist_inputs": batch.extras["action_dist_inputs"],
            "advantages": advantages,
            "value_targets": targets,
        }
        if self.config.kl_coeff == 0.0:
            del columns["action_dist_inputs"]
        return inputs | self.layout.columns(batch.mask, columns)

    def minibatches(self, columns: Columns) -> Iterator[Columns]:
        """Several passes over the rows or sequences, in random order."""
        passes, size = self.config.num_sgd_iter, self.config.sgd_minibatch_size
        return self.layout.minibatches(columns, size, passes, self.generator, self.rank, self.world_size)

    def loss(self, outputs: tuple[Tensor, Tensor], minibatch: Columns) -> Loss:
        """Mean PPO loss; `outputs`: distribution inputs [N, D] and values [N]."""
        config, actions = self.config, minibatch["actions"]
        dist_inputs, values = outputs
        dist = self.policy.dist_class(dist_inputs)
        surrogate = clipped_surrogate(
            dist.logp(actions), minibatch["action_logp"], minibatch["advantages"], config.clip_param
        )
        error = clipped_error(values, minibatch["value_targets"], config.vf_clip_param)
        stats = {"policy_loss": -surrogate.mean(), "vf_loss": error.mean(), "entropy": dist.entropy().mean()}
        vf_loss_coeff = config.vf_loss_coeff if config.use_critic else 0.0
        loss = stats["policy_loss"] + vf_loss_coeff * stats["vf_loss"] - self.entropy_coeff * stats["entropy"]
        if config.kl_coeff > 0.0:
            old = self.policy.dist_class(minibatch["action_dist_inputs"])
            stats["kl"] = old.kl(dist).mean()
            loss = loss + self.kl_coeff * stats["kl"]
        return Loss(loss, {name: value.detach() for name, value in stats.items()})

    def adapt(self, stats: Stats) -> Stats:
        """Adapt the weight of the KL penalty to `kl_target` (section 4 of the paper)."""
        if "kl" in stats:
            if stats["kl"] > 2.0 * self.config.kl_target:
                self.kl_coeff *= 1.5
            elif stats["kl"] < 0.5 * self.config.kl_target:
                self.kl_coeff *= 0.5
        return stats | {"cur_kl_coeff": self.kl_coeff.item(), "entropy_coeff": self.entropy_coeff.item()}

    def state(self) -> State:
        """The learner's state with the adapted KL weight."""
        return super().state() | {"kl_coeff": self.kl_coeff.item()}

    def set_state(self, state: State) -> None:
        """Restore what `state` returned."""
        super().set_state(state)
        self.kl_coeff.fill_(state["kl_coeff"])


class PPO(Algorithm):
    """Sample a batch, improve on it, publish the weights."""

    config_class = PPOConfig
    learner_class = PPOLearner

    def training_step(self) -> dict[str, Stats]:
        """One iteration of the on-policy flow."""
        return on_policy(self)
