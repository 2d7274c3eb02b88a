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


def quantile_huber(
    quantiles: Tensor,  # [..., N, n], number i of the fraction (i + 0.5) / n
    targets: Tensor,  # [N, k] samples of the return
) -> Tensor:  # [..., N]
    """Return the Huber loss between each quantile and each target, weighted by the quantile's fraction; their mean.

    The weight is the fraction for targets above the quantile, else 1 minus the fraction (Dabney et al. 2018, eq. 10).
    """
    count = quantiles.shape[-1]
    fractions = (torch.arange(count, device=quantiles.device, dtype=quantiles.dtype).unsqueeze(-1) + 0.5) / count
    values = quantiles.unsqueeze(-1).expand(*quantiles.shape, targets.shape[-1])  # [..., N, n, k]
    samples = targets.unsqueeze(-2).expand_as(values)
    weights = torch.where(samples < values.detach(), 1.0 - fractions, fractions)
    return (weights * huber(values, samples)).mean((-2, -1))


def weighted_mean(losses: Tensor, weights: Tensor | None) -> Tensor:
    """The mean of the losses [N], each times its importance weight if replay is prioritized (Schaul et al. 2016)."""
    return losses.mean() if weights is None else (losses * weights).mean()
