"""Rewards by the entropy of states under a random encoder (Seo et al. 2021)."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from reef.learn.intrinsic.rewards import IntrinsicRewards
from reef.nn.flat import FlatParameters
from reef.nn.gradients import Columns
from reef.nn.layers.encoders import EncoderWithHead
from reef.rollout.exploration import RE3
from reef.spaces import Layout
from reef.types import State, Stats

# Rows whose distances to all others are computed at a time.
BLOCK = 1024


class RandomEncoderRewards(IntrinsicRewards):
    """Rewards the distance to the k-th nearest neighbour in the batch; its network is never trained."""

    name: ClassVar[str] = "re3"

    def __init__(self, settings: RE3, observations: Layout, *, device: torch.device) -> None:
        super().__init__(device)
        self.settings, self.batches = settings, 0
        self.encoder = EncoderWithHead(observations, settings.encoder_net, settings.embeds_dim).to(device)
        self.flat = FlatParameters(self.encoder.parameters())

    @property
    def beta(self) -> float:
        """The present weight of the rewards (eq. 4)."""
        decays = self.settings.beta_schedule == "linear_decay"
        return float(self.settings.beta * ((1.0 - self.settings.rho) ** self.batches if decays else 1.0))

    @torch.no_grad()
    def of(self, columns: Columns) -> tuple[Tensor, Stats]:
        """[N] beta log(1 + distance) (eq. 3)."""
        embedded, beta = self.encoder(columns["obs"]), self.beta
        self.batches += 1
        return beta * torch.log1p(neighbour_distances(embedded, self.settings.k_nn)), {"re3_beta": beta}

    def state(self) -> State:
        """The weights of the encoder, and how many batches there were."""
        return {"weights": self.flat.numpy(), "batches": self.batches}

    def set_state(self, state: State) -> None:
        """Restore what `state` returned."""
        self.flat.load(state["weights"])
        self.batches = state["batches"]


def neighbour_distances(
    points: Tensor,  # [N, D]
    k: int,
) -> Tensor:  # [N]
    """The distance of each point to its k-th nearest other point, or to the farthest of fewer; 0 for a single one."""
    place = min(k + 1, len(points))  # the nearest point is the point itself
    # not by matrix products: they make distances of equal points larger than 0
    exact = "donot_use_mm_for_euclid_dist"
    distances = (torch.cdist(block, points, compute_mode=exact) for block in torch.split(points, BLOCK))
    return torch.cat([each.kthvalue(place).values for each in distances])
