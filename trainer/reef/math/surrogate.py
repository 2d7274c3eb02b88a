"""PPO's clipped terms, and its adaptive KL penalty (Schulman et al. 2017)."""

from __future__ import annotations

import torch
from torch import Tensor

from reef.types import Stats


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


class KLPenalty:
    """The KL divergence from an older policy as a part of a loss, whose weight is adapted to a target (section 4)."""

    def __init__(
        self,
        coeff: float,  # the first weight
        target: float,  # nats
        device: torch.device,
    ) -> None:
        self.coeff = torch.tensor(coeff, device=device)
        self.target = target

    def adapt(self, stats: Stats) -> Stats:
        """Adapt the weight to the divergence `kl` of an update, if it has one, and report it."""
        if (kl := stats.get("kl")) is not None:
            self.coeff *= 1.5 if kl > 2.0 * self.target else 0.5 if kl < 0.5 * self.target else 1.0
        return stats | {"cur_kl_coeff": self.value}

    @property
    def value(self) -> float:
        """The weight as a number; it can be set."""
        return self.coeff.item()

    @value.setter
    def value(self, value: float) -> None:
        self.coeff.fill_(value)
