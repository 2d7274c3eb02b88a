"""Value distributions over fixed atoms (C51)."""

from __future__ import annotations

import torch
from torch import Tensor


def project(
    probabilities: Tensor,  # [N, Z], of the next state's return
    rewards: Tensor,  # [N], summed over n steps
    discounts: Tensor,  # [N], gamma^n, 0 where the episode terminated
    atoms: Tensor,  # [Z] evenly spaced, increasing
) -> Tensor:  # [N, Z] probabilities of r + gamma^n z on the same atoms
    """Project the shifted and shrunk distribution back onto the atoms (Bellemare, Dabney & Munos 2017, eq. 7).

    Each moved atom shares its probability between its two neighbours in proportion to its nearness; beyond the ends
    all of it falls on the last atom.
    """
    moved = (rewards[:, None] + discounts[:, None] * atoms).clamp(atoms[0], atoms[-1])  # [N, Z]
    distance = (moved[:, None, :] - atoms[:, None]).abs() / (atoms[1] - atoms[0])  # [N, target, source]
    return torch.bmm((1.0 - distance).clamp(0.0, 1.0), probabilities[:, :, None]).squeeze(-1)
