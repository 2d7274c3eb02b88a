"""A batch as rows, in columns [N, ...], and minibatches of them that are shared between learners."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from reef.batch import Rollout, Transitions, cut_ends
from reef.learn.device import to_device
from reef.nn.gradients import Columns
from reef.types import Array


def shuffled(
    columns: Columns,  # [N, ...] each
    size: int,  # rows of a minibatch over all learners
    passes: int,
    generator: torch.Generator | None,  # None: in their order
    rank: int = 0,
    world_size: int = 1,
) -> Iterator[Columns]:
    """`passes` over the rows in random order; an incomplete last minibatch is dropped.

    Rows are gathered once per pass, so that minibatches are slices. Every learner takes a step: fewer rows than
    learners are repeated.
    """
    if row_count(columns) < world_size:
        columns = repeated(columns, world_size)
    rows, device = row_count(columns), next(iter(columns.values())).device
    for _ in range(passes):
        mixed = columns
        if generator is not None:
            order = torch.randperm(rows, generator=generator).to(device)
            mixed = {name: column.index_select(0, order) for name, column in columns.items()}
        for mine in learner_parts(rows, min(size, rows), rank, world_size):
            yield {name: column[mine] for name, column in mixed.items()}


def in_order(columns: Columns, size: int, rank: int = 0, world_size: int = 1) -> Iterator[Columns]:
    """Minibatches of `size` rows over all learners, in order; an incomplete last minibatch is dropped."""
    for mine in learner_parts(row_count(columns), size, rank, world_size):
        yield {name: column[mine] for name, column in columns.items()}


def learner_parts(rows: int, size: int, rank: int, world_size: int) -> Iterator[slice]:
    """The part of this learner in every whole minibatch of `size` of the `rows`."""
    part = size // world_size  # equally long for each learner, so that gradients average
    for start in range(0, rows - size + 1, size):
        yield slice(start + rank * part, start + (rank + 1) * part)


def repeated(columns: Columns, least: int) -> Columns:
    """The rows several times over, so that there are at least `least`."""
    times = math.ceil(least / row_count(columns))
    return {name: torch.cat([column] * times) for name, column in columns.items()}


def row_count(columns: Columns) -> int:
    """N, the length of every column."""
    return len(next(iter(columns.values())))


class Reading(NamedTuple):
    """What the current policy computes for a rollout."""

    # [T, B] value of each step's observation
    values: Array
    # [T, B] value of its true successor
    next_values: Array
    # inputs of the network in training
    inputs: Columns


class Rows:
    """A rollout as rows, for policies without memory: steps are independent of each other."""

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


def transition_columns(batch: Transitions, device: torch.device) -> Columns:
    """Columns of replayed transitions [N], with the discounts gamma^n and, if present, importance weights."""
    columns = {name: getattr(batch, name) for name in ("obs", "actions", "rewards", "next_obs", "terminated")}
    columns |= {name: batch.extras[name] for name in ("discounts", "weights") if name in batch.extras}
    return {name: to_device(column, device) for name, column in columns.items()}
