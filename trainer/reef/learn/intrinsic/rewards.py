"""What every kind of intrinsic reward has: the valid steps of a batch, and how their rewards are added."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor

from reef.batch import Rollout, Transitions
from reef.learn.device import to_device
from reef.nn.gradients import Columns
from reef.nn.recurrent import with_sampled_rewards
from reef.types import Array, State, Stats

Batch = TypeVar("Batch", Rollout, Transitions)


class IntrinsicRewards(ABC):
    """Adds rewards to the batches of one learner. Several learners see the same batches and compute the same."""

    # Of its state in a checkpoint of the learner.
    name: ClassVar[str]

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def add(self, batch: Batch) -> tuple[Batch, Stats]:
        """Return the batch with larger rewards, and statistics; masked steps keep theirs."""
        valid = valid_steps(batch)
        if not valid.any():
            return batch, {}
        names = ("obs", "actions", "next_obs")
        columns = {name: to_device(getattr(batch, name)[valid], self.device) for name in names}
        found, stats = self.of(columns)
        rewards = batch.rewards.copy()
        rewards[valid] += found.cpu().numpy()
        larger = replace(with_sampled_rewards(batch), rewards=rewards)
        return larger, {"intrinsic_reward": float(found.mean())} | stats

    @abstractmethod
    def of(self, columns: Columns) -> tuple[Tensor, Stats]:
        """[N] intrinsic rewards of the steps `obs`, `actions`, `next_obs` [N, ...], which it then learns from."""

    @abstractmethod
    def state(self) -> State:
        """Everything that a checkpoint needs."""

    @abstractmethod
    def set_state(self, state: State) -> None:
        """Restore what `state` returned."""


def valid_steps(batch: Rollout | Transitions) -> Array:
    """Which steps count, of the shape of the rewards: [T, B], [N] or, for sequences, [N, W]."""
    if isinstance(batch, Rollout):
        return batch.mask
    return batch.extras["mask"] if "mask" in batch.extras else np.ones(batch.rewards.shape, np.bool_)
