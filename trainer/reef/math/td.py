"""Targets and losses of temporal-difference learning."""

from __future__ import annotations

import torch
from torch import Tensor


def td_targets(
    rewards: Tensor,  # [N], summed over n steps
    discounts: Tensor,  # [N], gamma^n
    terminated: Tensor,  # [N] bool
    next_values: Tensor,  # [N], of the state n steps later
) -> Tensor:  # [N]
    """Return r + gamma^n V(s'), without the second term where the episode terminated (Sutton & Barto 2018, eq. 7.1).

    A truncated episode has a value beyond its end, so truncation does not matter here.
    """
    return rewards + discounts * next_values * ~terminated


def huber(values: Tensor, targets: Tensor, delta: float = 1.0) -> Tensor:
    """Return 0.5 e^2 where |e| <= delta, else delta (|e| - delta / 2), with e = values - targets (Huber 1964)."""
    return torch.nn.functional.huber_loss(values, targets, reduction="none", delta=delta)


def weighted_mean(losses: Tensor, weights: Tensor | None) -> Tensor:
    """The mean of the losses [N], each times its importance weight if replay is prioritized (Schaul et al. 2016)."""
    return losses.mean() if weights is None else (losses * weights).mean()
