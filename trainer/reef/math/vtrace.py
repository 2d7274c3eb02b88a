"""V-trace (Espeholt et al. 2018, IMPALA, section 4.1): advantages and value targets of steps by an older policy."""

from __future__ import annotations

import math

import numpy as np

from reef.types import Array


def vtrace(
    log_ratios: Array,  # [T, B] log-likelihood of the action by the policy in training, minus by that which acted
    rewards: Array,  # [T, B]
    values: Array,  # [T, B] value of each step's observation
    next_values: Array,  # [T, B] value of each step's true successor
    terminated: Array,  # [T, B] bool: the successor has value 0
    truncated: Array,  # [T, B] bool: the successor has its value, but the next step belongs to another episode
    gamma: float,
    lambda_: float = 1.0,
    clip_rho: float = 1.0,
    clip_pg_rho: float = 1.0,
    mask: Array | None = None,  # [T, B] bool: False for invalid steps
) -> tuple[Array, Array]:
    """Policy gradient advantages and value targets, both [T, B] float32.

    The targets are those of eq. 1, with c_i = lambda min(1, ratio) as in remark 2; the advantages are
    rho (r + gamma v_next - V) with rho = min(clip_pg_rho, ratio). As in `gae`, the last step is bootstrapped from
    `next_values` like all other steps, and a masked step has advantage 0 and passes nothing on. Where all ratios are 1
    the targets are the n-step returns, or with lambda below 1 those of GAE.
    """
    alive = ~terminated
    carries = gamma * lambda_ * (alive & ~truncated) * _clipped(log_ratios, 1.0)
    errors = rewards + gamma * next_values * alive - values
    deltas = _clipped(log_ratios, clip_rho) * errors
    if mask is not None:
        deltas, carries, errors = (np.where(mask, each, 0.0) for each in (deltas, carries, errors))
    corrections = np.empty_like(deltas)  # target - value
    following = np.zeros_like(deltas)  # that of the next step of the same episode
    last = np.zeros(deltas.shape[1], deltas.dtype)
    for t in range(len(deltas) - 1, -1, -1):
        following[t] = last
        corrections[t] = last = deltas[t] + carries[t] * last
    goes_on = alive & ~truncated if mask is None else alive & ~truncated & mask
    advantages = _clipped(log_ratios, clip_pg_rho) * (errors + gamma * goes_on * following)
    return advantages.astype(np.float32), (values + corrections).astype(np.float32)


def _clipped(log_ratios: Array, limit: float) -> Array:
    """min(limit, ratio), without an overflow for ratios that are too large for a float."""
    return np.exp(np.minimum(log_ratios, math.log(limit)))
