"""Adam on one flat vector (Kingma & Ba 2015, algorithm 1)."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from reef.nn.flat import FlatParameters
from reef.types import State

log = logging.getLogger(__name__)


class Adam:
    """Torch's own fused kernel, called directly.

    `torch.optim` around it would load the whole compiler at the first step (a second of start-up, 80 MB) and look after
    parameter groups, hooks and devices at every step, which costs more than the arithmetic of a small network.
    """

    def __init__(
        self,
        flat: FlatParameters,
        lr: float,
        *,
        betas: Sequence[float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
    ) -> None:
        """Arguments mean what they mean to `torch.optim.Adam`; `lr` may be set at any time."""
        self.flat, self.lr, self.betas, self.eps = flat, lr, betas, eps
        self.weight_decay, self.amsgrad = weight_decay, amsgrad
        self.step_count = torch.zeros((), device=flat.vector.device)
        self.exp_avg, self.exp_avg_sq = torch.zeros_like(flat.vector), torch.zeros_like(flat.vector)
        self.max_exp_avg_sq = [torch.zeros_like(flat.vector)] if amsgrad else []

    def step(self) -> None:
        """Move the parameters against their gradient."""
        self.step_count += 1
        torch._fused_adam_(
            [self.flat.vector],
            [self.flat.gradient],
            [self.exp_avg],
            [self.exp_avg_sq],
            self.max_exp_avg_sq,
            [self.step_count],
            lr=self.lr,
            beta1=self.betas[0],
            beta2=self.betas[1],
            weight_decay=self.weight_decay,
            eps=self.eps,
            amsgrad=self.amsgrad,
            maximize=False,
        )

    def _moments(self) -> dict[str, Tensor]:
        moments = {"step": self.step_count, "exp_avg": self.exp_avg, "exp_avg_sq": self.exp_avg_sq}
        return moments | ({"max_exp_avg_sq": self.max_exp_avg_sq[0]} if self.amsgrad else {})

    def state(self) -> State:
        """The moments and the number of steps."""
        return {name: value.cpu().numpy().copy() for name, value in self._moments().items()}

    def set_state(self, state: State) -> None:
        """The reverse of `state`; with amsgrad newly switched on, the largest moments count from here."""
        for name, value in self._moments().items():
            if name in state:
                value.copy_(torch.from_numpy(np.array(state[name])))
            else:
                log.warning("optimizer.amsgrad=True: the checkpoint was written without it, so it begins anew")
                value.zero_()
