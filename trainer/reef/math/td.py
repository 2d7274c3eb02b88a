"""Targets and losses of temporal-difference learning."""

from __future__ import annotations

import torch
from torch import Tensor


def td_targets(
    rewards: Tensor,  # [N], summed over n steps
    discounts: Tensor,  # [N], gamma^n
    terminated: Tensor,  # [N] bool
    next_values: Tensor,  # [N], of the state n steps on
) -> Tensor:  # [N]
    """Return r + gamma^n V(s'), without the second term where the episode terminated (Sutton & Barto 2018, eq. 7.1).

    A truncated episode still has a value beyond its end, so truncation plays no part.
    """
    return rewards + discounts * next_values * ~terminated


def greedy_values(
    values: Tensor,  # [N, A], what the chosen actions are worth
    chooser: Tensor | None = None,  # [N, A], what chooses; `values` themselves when None
) -> Tensor:  # [N]
    """Return the value of the greedy action.

    With the online network as chooser and the target network's values this is Double Q-learning
    (van Hasselt, Guez & Silver 2016, eq. 4); without a chooser it is the maximum (Mnih et al. 2015).
    """
    if chooser is None:
        return values.amax(-1)
    return values.gather(-1, chooser.argmax(-1, keepdim=True)).squeeze(-1)


def huber(errors: Tensor, delta: float = 1.0) -> Tensor:
    """Return 0.5 e^2 where |e| <= delta, else delta (|e| - delta / 2), elementwise (Huber 1964)."""
    return torch.nn.functional.huber_loss(errors, torch.zeros_like(errors), reduction="none", delta=delta)
