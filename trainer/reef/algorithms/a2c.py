"""Advantage actor-critic (Mnih et al. 2016, section 4), with workers that wait for each other.

Rollout [T, B] -> advantages by GAE -> one gradient step of the policy gradient and the value error -> new weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

import torch
from torch import Tensor

from reef.algorithms.actor_critic import ActorCriticAlgorithm, ActorCriticConfig, ActorCriticLearner
from reef.config import Scheduled, default, setting
from reef.nn.gradients import SHARE, Columns, Gradient, Loss
from reef.nn.recurrent import BEGINS, VALID


class A2CConfig(ActorCriticConfig):
    """Settings of A2C."""

    algorithm: ClassVar[str] = "A2C"
    algorithm_class: ClassVar[str] = "reef.algorithms.a2c:A2C"

    lr: Scheduled = default(1e-4)
    grad_clip: float | None = default(40.0)
    train_batch_size: int = default(200)
    rollout_fragment_length: int | Literal["auto"] = default(20)
    min_sample_timesteps_per_iteration: int | None = default(1000)
    vf_loss_coeff: float = default(0.5)
    entropy_coeff: float | list[list[float]] = default(0.01)
    normalize_advantages: bool = default(False)
    microbatch_size: int | None = setting(
        None,
        "Steps whose gradient a learner computes at a time: it adds up those of all parts of a train batch, which "
        "needs less memory. null takes the whole batch.",
        minimum=1,
        unit="steps",
    )

    @property
    def weighs_actions(self) -> bool:
        """No: the policy's own actions alone give its gradient."""
        return False

    def problems(self) -> Iterator[str]:
        """Yield contradictions between these settings."""
        yield from super().problems()
        size, share = self.microbatch_size, self.total_train_batch_size // max(self.num_learner_workers, 1)
        if size is None:
            return
        if size >= share:
            yield (
                f"microbatch_size={size}: a learner's train batch has {share} steps, and would be one part. Set it "
                "below that, or leave it out."
            )
        if self.model.memories and size < self.model.max_seq_len:
            yield (
                f"microbatch_size={size} holds no sequence of model.max_seq_len={self.model.max_seq_len} steps; raise "
                "the first or lower the second."
            )


class A2CLearner(ActorCriticLearner):
    """Policy gradient, squared value error, entropy bonus."""

    config: ActorCriticConfig

    def loss(self, outputs: tuple[Tensor, Tensor], minibatch: Columns) -> Loss:
        """The mean of A2C's loss; `outputs`: distribution inputs [N, D] and values [N]."""
        dist_inputs, values = outputs
        dist = self.policy.dist_class(dist_inputs)
        stats = {
            "policy_loss": -(dist.logp(minibatch["actions"]) * minibatch["advantages"]).mean(),
            "vf_loss": (values - minibatch["value_targets"]).square().mean(),
            "entropy": dist.entropy().mean(),
        }
        return Loss(self.weighted_sum(stats), {name: value.detach() for name, value in stats.items()})


class MicrobatchLearner(A2CLearner):
    """Adds up the gradients of parts of a batch where `microbatch_size` is set."""

    config: A2CConfig

    def setup(self) -> None:
        """Train the whole policy by `loss`."""
        super().setup()
        if self.config.microbatch_size is not None:
            self.parameters.gradient = self.by_parts(self.parameters.gradient, self.config.microbatch_size)

    def by_parts(self, gradient: Gradient, size: int) -> Gradient:
        """Return the gradient of the mean over a minibatch as the sum over its parts, weighted by their steps."""
        flat = self.policy.flat

        def summed(minibatch: Columns) -> Loss:
            steps = len(minibatch["actions"])
            whole, value = torch.zeros_like(flat.gradient), torch.zeros((), device=self.device)
            stats: dict[str, Tensor] = {}
            for part in parts(minibatch, size, self.policy.inputs):
                flat.gradient.zero_()
                loss, share = gradient(part), len(part["actions"]) / steps
                whole += share * flat.gradient
                value = value + share * loss.value
                stats = {name: stats.get(name, 0.0) + share * own for name, own in loss.stats.items()}
            flat.gradient.copy_(whole)
            return Loss(value, stats)

        return summed


def parts(minibatch: Columns, size: int, inputs: tuple[str, ...]) -> Iterator[Columns]:
    """Cut a minibatch into parts of `size` steps, or of whole sequences with about as many, and a shorter last one.

    `inputs`: the columns that the network reads, which are sequences [S, L, ...] if it has a memory.
    """
    columns = {name: column for name, column in minibatch.items() if name != SHARE}
    if VALID not in columns:
        for start in range(0, len(columns["actions"]), size):
            yield {name: column[start : start + size] for name, column in columns.items()}
        return
    valid, (sequences, length) = columns.pop(VALID), columns[BEGINS].shape
    count = max(size // length, 1)
    for start in range(0, sequences, count):
        ends = torch.tensor([start * length, (start + count) * length], device=valid.device)
        first, last = torch.searchsorted(valid, ends).tolist()
        read = {name: column[start : start + count] for name, column in columns.items() if name in inputs}
        steps = {name: column[first:last] for name, column in columns.items() if name not in inputs}
        yield {**read, **steps, VALID: valid[first:last] - start * length}


class A2C(ActorCriticAlgorithm):
    """Sample a batch, improve on it by one step, publish the weights."""

    config_class = A2CConfig
    learner_class = MicrobatchLearner
