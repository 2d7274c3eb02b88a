"""Proximal policy optimisation (Schulman et al. 2017), with clipping and an adaptive KL penalty.

Rollout [T, B] -> advantages by GAE -> several passes of minibatches through the clipped surrogate -> new weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from reef.algorithms.actor_critic import ActorCriticAlgorithm, ActorCriticConfig, ActorCriticLearner
from reef.batch import Rollout
from reef.config import ModelConfig, default, setting
from reef.config.ignored import Network, ignored
from reef.math.surrogate import KLPenalty, clipped_error, clipped_surrogate
from reef.nn.gradients import Columns, Loss
from reef.types import Array, State, Stats


class PPOConfig(ActorCriticConfig):
    """Settings of PPO."""

    algorithm: ClassVar[str] = "PPO"
    algorithm_class: ClassVar[str] = "reef.algorithms.ppo:PPO"

    lr: float | list[list[float]] = default(5e-5)
    train_batch_size: int = default(4000)
    rollout_fragment_length: int | Literal["auto"] = default("auto")
    model: ModelConfig = default({"vf_share_layers": False})
    sgd_minibatch_size: int = setting(128, "Steps in one minibatch, over all learners", minimum=1)
    num_sgd_iter: int = setting(30, "Passes over each train batch", minimum=1)
    shuffle_sequences: bool = setting(
        True, "Take the steps of a train batch, or the sequences of a memory, in another random order in each pass"
    )
    clip_param: float = setting(0.3, "The likelihood ratio is clipped to 1 +- this (eq. 7)", above=0.0)
    kl_coeff: float = setting(0.2, "First weight of the KL penalty (eq. 8); 0 switches it off", minimum=0.0)
    kl_target: float = setting(0.01, "KL in nats that the adaptive penalty steers to", above=0.0)
    vf_clip_param: float | None = setting(
        10.0,
        "Squared value errors above this give no gradient: fit it to the scale of rewards, or None",
        above=0.0,
    )

    def problems(self) -> Iterator[str]:
        """Yield contradictions between these settings."""
        yield from super().problems()
        if self.sgd_minibatch_size > self.total_train_batch_size:
            yield (
                f"sgd_minibatch_size={self.sgd_minibatch_size} is larger than "
                f"train_batch_size={self.total_train_batch_size}; lower the first or raise the second"
            )
        if self.model.memories and self.sgd_minibatch_size < self.model.max_seq_len * max(self.num_learner_workers, 1):
            yield (
                f"sgd_minibatch_size={self.sgd_minibatch_size} holds no sequence of model.max_seq_len="
                f"{self.model.max_seq_len} steps for each learner; raise the first or lower the second."
            )
        if self.sgd_minibatch_size % max(self.num_learner_workers, 1):
            yield (
                f"sgd_minibatch_size={self.sgd_minibatch_size} cannot be shared evenly by "
                f"num_learner_workers={self.num_learner_workers}; use a multiple of it"
            )

    def ignored_settings(self, network: Network) -> Iterator[str]:
        """Yield notes for penalties that are switched off."""
        yield from super().ignored_settings(network)
        if not self.kl_coeff:
            yield from ignored(self, "with kl_coeff=0", "kl_target")
        if not self.use_critic:
            yield from ignored(self, "without use_critic", "vf_clip_param")


class PPOLearner(ActorCriticLearner):
    """Clipped surrogate, clipped value error, entropy bonus, KL penalty."""

    config: PPOConfig

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.kl_penalty = KLPenalty(self.config.kl_coeff, self.config.kl_target, self.device)

    @property
    def minibatch_size(self) -> int:
        """Rows per gradient step, over all learners."""
        return self.config.sgd_minibatch_size

    def acted(self, batch: Rollout) -> dict[str, Array]:
        """Adds by which distribution, if the KL penalty reads it, and how likely the actions were."""
        names = ("action_logp", "action_dist_inputs") if self.config.kl_coeff else ("action_logp",)
        return super().acted(batch) | {name: batch.extras[name] for name in names}

    @property
    def order(self) -> torch.Generator | None:
        """What draws the order of rows or sequences; None: it stays."""
        return self.generator if self.config.shuffle_sequences else None

    def minibatches(self, columns: Columns) -> Iterator[Columns]:
        """Several passes over the rows or sequences."""
        passes, size = self.config.num_sgd_iter, self.config.sgd_minibatch_size
        return self.layout.minibatches(columns, size, passes, self.order, self.rank, self.world_size)

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
        loss = self.weighted_sum(stats)
        if config.kl_coeff > 0.0:
            old = self.policy.dist_class(minibatch["action_dist_inputs"])
            stats["kl"] = old.kl(dist).mean()
            loss = loss + self.kl_penalty.coeff * stats["kl"]
        return Loss(loss, {name: value.detach() for name, value in stats.items()})

    def adapt(self, stats: Stats) -> Stats:
        """Adapt the weight of the KL penalty to `kl_target` (section 4 of the paper)."""
        return self.kl_penalty.adapt(stats) | {"entropy_coeff": self.entropy_coeff.item()}

    def state(self) -> State:
        """The learner's state with the adapted KL weight."""
        return super().state() | {"kl_coeff": self.kl_penalty.value}

    def set_state(self, state: State) -> None:
        """Restore what `state` returned."""
        super().set_state(state)
        self.kl_penalty.value = state["kl_coeff"]


class PPO(ActorCriticAlgorithm):
    """Sample a batch, improve on it in several passes, publish the weights."""

    config_class = PPOConfig
    learner_class = PPOLearner
