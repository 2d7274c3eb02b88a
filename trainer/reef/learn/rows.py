"""A rollout as rows, for policies without memory: steps are independent of each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from reef.batch import Rollout
from reef.learn.device import to_device
from reef.learn.minibatches import shuffled
from reef.nn.gradients import Columns
from reef.types import Array


class Reading(NamedTuple):
    """What the current policy computes for a rollout."""

    # [T, B] value of each step's observation
    values: Array
    # [T, B] value of its true successor
    next_values: Array
    # inputs of the network in training
    inputs: Columns


class Rows:
    """Cuts minibatches of single steps."""

    minibatches = staticmethod(shuffled)

    def __init__(self, policy: Any, device: torch.device) -> None:
        """`policy`: one with `values`."""
        self.policy, self.device = policy, device

    def read(self, batch: Rollout, *, with_values: bool = True) -> Reading:
        """Values by the current critic, zeros without values; only cut ends need a second forward pass."""
        inputs = self.columns(batch.mask, {"obs": batch.obs})
        if not with_values:
            return Reading(np.zeros_like(batch.rewards), np.zeros_like(batch.rewards), inputs)
        cut = cut_ends(batch)
        with torch.inference_mode():
            rows = np.concatenate([batch.obs.reshape(-1, *batch.obs.shape[2:]), batch.next_obs[cut]])
            predicted = self.policy.values(to_device(rows, self.device)).cpu().numpy()
        values = predicted[: cut.size].reshape(cut.shape)
        next_values = np.zeros_like(values)
        next_values[:-1] = values[1:]
        next_values[cut] = predicted[cut.size :]
        return Reading(values, next_values, inputs)

    def dist_inputs(self, batch: Rollout) -> Array:
        """[T, B, D]: the inputs of the current policy's action distribution in each step."""
        with torch.inference_mode():
            rows = to_device(batch.obs.reshape(-1, *batch.obs.shape[2:]), self.device)
            found: Array = self.policy.dist_inputs(rows).cpu().numpy()
        return found.reshape(*batch.shape, -1)

    def columns(
        self,
        mask: Array,  # [T, B] bool
        arrays: Mapping[str, Array],  # [T, B, ...] each
    ) -> Columns:
        """The valid steps as columns [N, ...]."""
        everything = bool(mask.all())
        flat = {name: a.reshape(-1, *a.shape[2:]) if everything else a[mask] for name, a in arrays.items()}
        return {name: to_device(column, self.device) for name, column in flat.items()}


def cut_ends(batch: Rollout) -> Array:
    """[T, B] bool: steps whose true successor is not the next observation, although the episode did not terminate."""
    cut = batch.truncated.copy()
    cut[-1] = True
    cut[:-1] |= ~batch.mask[1:]  # a shorter fragment ends where its padding starts
    return cut & batch.mask
