"""Generalised advantage estimation (Schulman et al. 2016, eq. 16): advantages from rewards and values."""

from __future__ import annotations

import numpy as np

from reef.types import Array


def gae(
    rewards: Array,  # [T, B]
    values: Array,  # [T, B] value of each step's observation
    next_values: Array,  # [T, B] value of each step's true successor
    terminated: Array,  # [T, B] bool: the successor has value 0
    truncated: Array,  # [T, B] bool: the successor has its value, but the next step belongs to another episode
    gamma: float,
    lambda_: float,
    mask: Array | None = None,  # [T, B] bool: False for invalid steps
) -> tuple[Array, Array]:
    """Generalised advantages and value targets, both [T, B] float32.

    Computed backwards in time for all columns at once. The last step is bootstrapped from `next_values` like all other
    steps. A masked step has advantage 0 and passes nothing on.
    """
    alive = ~terminated
    carries = gamma * lambda_ * (alive & ~truncated)
    deltas = rewards + gamma * next_values * alive - values
    if mask is not None:
        deltas, carries = np.where(mask, deltas, 0.0), np.where(mask, carries, 0.0)
    deltas, carries = deltas.astype(np.float32), carries.astype(np.float32)
    advantages = np.empty_like(deltas)
    last = np.zeros(deltas.shape[1], np.float32)
    for t in range(len(deltas) - 1, -1, -1):
        last = deltas[t] + carries[t] * last
        advantages[t] = last
    return advantages, advantages + values
