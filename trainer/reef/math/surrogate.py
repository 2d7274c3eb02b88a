"""PPO's two clipped terms, each with its derivative (Schulman et al. 2017)."""

from __future__ import annotations

import torch
from torch import Tensor


def clipped_surrogate(
    logp: Tensor,  # [N] of the policy that learns
    old_logp: Tensor,  # [N] of the one that acted
    advantages: Tensor,  # [N]
    clip: float,
) -> tuple[Tensor, Tensor]:  # [N], and its derivative with respect to logp [N]
    """Likelihood ratio times advantage, or the same with the ratio clipped to 1 +- clip if that is less (eq. 7)."""
    ratio = torch.exp(logp - old_logp)
    free, bound = advantages * ratio, advantages * ratio.clamp(1 - clip, 1 + clip)
    return torch.min(free, bound), free * (free <= bound)


def clipped_error(
    values: Tensor,  # [N]
    targets: Tensor,  # [N]
    limit: float | None,
) -> tuple[Tensor, Tensor]:  # [N], and its derivative with respect to values [N]
    """The squared error, at most `limit`: beyond it there is no gradient."""
    error = values - targets
    square = error * error
    if limit is None:
        return square, 2 * error
    return square.clamp(max=limit), 2 * error * (square <= limit)
