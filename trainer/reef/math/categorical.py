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
    """Project the shifted and scaled distribution back onto the atoms (Bellemare, Dabney & Munos 2017, eq. 7).

    Each shifted atom splits its probability between its two neighbours, the nearer one gets more; outside of the range,
    the first or last atom gets all of it.
    """
    moved = (rewards[:, None] + discounts[:, None] * atoms).clamp(atoms[0], atoms[-1])  # [N, Z]
    distance = (moved[:, None, :] - atoms[:, None]).abs() / (atoms[1] - atoms[0])  # [N, target, source]
    return torch.bmm((1.0 - distance).clamp(0.0, 1.0), probabilities[:, :, None]).squeeze(-1)
