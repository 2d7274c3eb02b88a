"""Decentralized distributed PPO (Wijmans et al. 2020): workers that learn from their own rollouts, together.

Rollout [T, B] in each worker -> advantages by GAE -> minibatches of it, whose gradients all workers average -> weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from reef.algorithms.ppo import PPOConfig, PPOLearner
from reef.batch import Rollout
from reef.config import default, setting
from reef.config.ignored import Network, ignored
from reef.config.refusals import Refusal
from reef.learn.learners import Ranks
from reef.learn.minibatches import row_count
from reef.nn.gradients import SHARE, Columns
from reef.run.algorithm import Algorithm
from reef.run.flows.on_policy import on_policy
from reef.run.flows.ranks import in_ranks
from reef.types import Array, PolicyId, Stats

BACKEND = "gradients are averaged by NCCL where each worker has a whole GPU (num_gpus_per_worker), else by gloo"


class DDPPOConfig(PPOConfig):
    """Settings of DD-PPO."""

    policies_may_change: ClassVar[bool] = False
    algorithm: ClassVar[str] = "DDPPO"
    algorithm_class: ClassVar[str] = "reef.algorithms.ddppo:DDPPO"
    decentralized: ClassVar[bool] = True
    of_all_policies: ClassVar[tuple[str, ...]] = (*PPOConfig.of_all_policies, "keep_local_weights_in_sync")
    refusals: ClassVar[Mapping[str, Refusal]] = {
        **PPOConfig.refusals,
        "torch_distributed_backend": Refusal("training", "gloo", BACKEND),
    }

    num_envs_per_worker: int = default(5)
    num_gpus_per_worker: float = default(1.0)
    train_batch_size: int = default(1000)
    sgd_minibatch_size: int = default(100)
    num_sgd_iter: int = default(10)
    kl_coeff: float = default(0.0)
    keep_local_weights_in_sync: bool = setting(
        True,
        "Fetch the weights of one worker after each iteration, for the policy in the algorithm's process; false "
        "fetches them for evaluation and checkpoints alone.",
    )

    def problems(self) -> Iterator[str]:
        """Yield contradictions between these settings."""
        yield from super().problems()
        ranks, size = max(self.num_rollout_workers, 1), self.sgd_minibatch_size
        if self.num_learner_workers:
            yield (
                f"num_learner_workers={self.num_learner_workers}: the rollout workers of DD-PPO are its learners. "
                "Set num_rollout_workers, and leave it at 0."
            )
        if self.sample_async:
            yield "sample_async=True: the rollout workers of DD-PPO are its learners. Leave it at False."
        if size % ranks:
            yield (
                f"sgd_minibatch_size={size} cannot be shared evenly by num_rollout_workers={ranks}; "
                "use a multiple of it"
            )
        if self.model.memories and size < self.model.max_seq_len * ranks:
            yield (
                f"sgd_minibatch_size={size} holds no sequence of model.max_seq_len={self.model.max_seq_len} steps for "
                "each rollout worker; raise the first or lower the second."
            )

    def ignored_settings(self, network: Network) -> Iterator[str]:
        """Yield notes for the GPU of a learner that is not there."""
        yield from super().ignored_settings(network)
        if self.num_rollout_workers:
            yield from ignored(self, "with rollout workers, which learn on num_gpus_per_worker", "num_gpus")


class DDPPOLearner(PPOLearner):
    """PPO's loss on a batch of each rank's own; all means are over the batches of all ranks."""

    def __init__(self, config: DDPPOConfig, *args: Any, **kwargs: Any) -> None:
        """Several ranks normalize advantages in `estimate`, where those of all are known."""
        self.normalizes = config.normalize_advantages and kwargs.get("world_size", 1) > 1
        if self.normalizes:
            config = config.copy().training(normalize_advantages=False).freeze()
        super().__init__(config, *args, **kwargs)

    def mean(self, *values: float) -> Tensor:
        """The mean of each value over all ranks, [n] float64."""
        means = torch.tensor(values, dtype=torch.float64, device=self.device)
        if self.reduce is not None:
            self.reduce(means)
        return means.cpu()

    def smallest(self, *counts: int) -> list[int]:
        """The smallest of each count over all ranks."""
        by_rank = np.zeros((len(counts), self.world_size))
        by_rank[:, self.rank] = counts
        means = self.mean(*by_rank.flat).reshape(by_rank.shape)
        return [round(mean * self.world_size) for mean in means.min(1).values.tolist()]

    def estimate(self, batch: Rollout, values: Array, next_values: Array) -> tuple[Array, Array]:
        """Advantages and value targets, both [T, B], by GAE; advantages are normalized over all ranks."""
        advantages, targets = super().estimate(batch, values, next_values)
        if self.normalizes:
            valid = advantages[batch.mask].astype(np.float64)
            count, total, squares = self.mean(valid.size, valid.sum(), np.square(valid).sum()).tolist()
            deviation = np.sqrt(max(squares / count - (total / count) ** 2, 0.0))
            advantages = ((advantages - total / count) / max(1e-4, deviation)).astype(np.float32)
        return advantages, targets

    def minibatches(self, columns: Columns) -> Iterator[Columns]:
        """Several passes over the rank's own rows or sequences; all ranks make the same number of steps."""
        if self.world_size == 1:
            yield from super().minibatches(columns)
            return
        own = row_count(columns)
        # steps of a sequence: fragments shorter than `max_seq_len` have shorter ones, not on all ranks the same
        length = columns["mask"].shape[1] if "mask" in columns else 1
        fewest, part = self.smallest(own, max(self.config.sgd_minibatch_size // length // self.world_size, 1))
        count, size = max(fewest // part, 1), min(part, own) * length
        for _ in range(self.config.num_sgd_iter):
            for minibatch in islice(self.layout.minibatches(columns, size, 1, self.order), count):
                if fewest < part or "mask" in columns:  # the ranks' means are of different numbers of steps
                    steps = len(minibatch["advantages"])
                    minibatch[SHARE] = (steps / self.mean(steps)[0]).to(self.device, torch.float32)
                yield minibatch


class DDPPO(Algorithm):
    """All workers sample, and improve the policy together; with no workers it is PPO."""

    config: DDPPOConfig
    config_class = DDPPOConfig
    learner_class = DDPPOLearner

    def training_step(self) -> dict[PolicyId, Stats]:
        """One round of all ranks."""
        if not self.config.num_rollout_workers:
            return on_policy(self)
        ranks: Ranks = self.learners  # type: ignore[assignment]
        stats = in_ranks(self, ranks)
        if self.config.keep_local_weights_in_sync:
            local = self.workers.local_worker()
            local.set_weights(ranks.weights(), self.policy_version, self.timestep)
        return stats
