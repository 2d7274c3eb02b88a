"""Cuts minibatches from the rows of a batch, shared between learners."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from reef.batch import Transitions
from reef.learn.device import to_device
from reef.nn.gradients import Columns


def transition_columns(batch: Transitions, device: torch.device) -> Columns:
    """Columns of replayed transitions [N], with the discounts gamma^n and, if present, importance weights."""
    columns = {name: getattr(batch, name) for name in ("obs", "actions", "rewards", "next_obs", "terminated")}
    columns |= {name: batch.extras[name] for name in ("discounts", "weights") if name in batch.extras}
    return {name: to_device(column, device) for name, column in columns.items()}


def shuffled(
    columns: Columns,  # [N, ...] each
    size: int,  # rows of a minibatch over all learners
    passes: int,
    generator: torch.Generator,
    rank: int = 0,
    world_size: int = 1,
) -> Iterator[Columns]:
    """`passes` over the rows in random order; an incomplete last minibatch is dropped.

    Rows are gathered once per pass, so that minibatches are slices.
    """
    columns = enough_for(columns, world_size)
    some_column = next(iter(columns.values()))
    rows, device = len(some_column), some_column.device
    size = min(size, rows)
    for _ in range(passes):
        order = torch.randperm(rows, generator=generator).to(device)
        mixed = {name: column.index_select(0, order) for name, column in columns.items()}
        yield from in_order(mixed, size, rank, world_size)


def enough_for(columns: Columns, world_size: int) -> Columns:
    """Repeat rows if there are fewer rows than learners, because every learner takes a step."""
    rows = len(next(iter(columns.values())))
    if rows >= world_size:
        return columns
    return {name: torch.cat([column] * math.ceil(world_size / rows)) for name, column in columns.items()}


def in_order(columns: Columns, size: int, rank: int = 0, world_size: int = 1) -> Iterator[Columns]:
    """Minibatches of `size` rows over all learners, in order; an incomplete last minibatch is dropped."""
    rows = len(next(iter(columns.values())))
    part = size // world_size  # equally long for each learner, so that gradients average
    for start in range(0, rows - size + 1, size):
        mine = slice(start + rank * part, start + (rank + 1) * part)
        yield {name: column[mine] for name, column in columns.items()}
