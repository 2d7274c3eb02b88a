"""PPO's two clipped terms (Schulman et al. 2017)."""

from __future__ import annotations

import torch
from torch import Tensor


def clipped_surrogate(
    logp: Tensor,  # [N] of the policy that learns
    old_logp: Tensor,  # [N] of the one that acted
    advantages: Tensor,  # [N]
    clip: float,
) -> Tensor:  # [N]
    """Likelihood ratio times advantage, or the same with the ratio clipped to 1 +- clip if that is less (eq. 7)."""
    ratio = torch.exp(logp - old_logp)
    return torch.min(advantages * ratio, advantages * ratio.clamp(1 - clip, 1 + clip))


def clipped_error(
    values: Tensor,  # [N]
    targets: Tensor,  # [N]
    limit: float | None,
) -> Tensor:  # [N]
    """The squared error, at most `limit`: beyond it there is no gradient."""
    error = values - targets
    square = error * error
    return square if limit is None else square.clamp(max=limit)
