"""PPO's clipped terms, and the adaptive weight of its KL penalty (Schulman et al. 2017)."""

from __future__ import annotations

import torch
from torch import Tensor


def clipped_surrogate(
    logp: Tensor,  # [N] by the policy in training
    old_logp: Tensor,  # [N] by the policy that acted
    advantages: Tensor,  # [N]
    clip: float,
) -> Tensor:  # [N]
    """The smaller of ratio * advantage and clipped ratio * advantage; the ratio is clipped to 1 +- clip (eq. 7)."""
    ratio = torch.exp(logp - old_logp)
    return torch.min(advantages * ratio, advantages * ratio.clamp(1 - clip, 1 + clip))


def clipped_error(
    values: Tensor,  # [N]
    targets: Tensor,  # [N]
    limit: float | None,
) -> Tensor:  # [N]
    """The squared error, at most `limit`; above it the gradient is 0."""
    error = values - targets
    square = error * error
    return square if limit is None else square.clamp(max=limit)


def kl_factor(kl: float, target: float) -> float:
    """By how much the weight of a KL penalty is multiplied to steer the divergence to `target` (section 4)."""
    if kl > 2.0 * target:
        return 1.5
    return 0.5 if kl < 0.5 * target else 1.0
