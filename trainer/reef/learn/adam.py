"""Adam, the default optimizer, and what all optimizers share: each works on one flat vector.

`torch.optim` loads the whole compiler at the first step (one second, 80 MB), and handles parameter groups, hooks and
devices at every step, which costs more than the arithmetic of a small network.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from reef.nn.flat import FlatParameters
from reef.types import State

log = logging.getLogger(__name__)


class Optimizer(ABC):
    """Updates a flat vector by its gradient with learning rate `lr`, which may be changed at any time."""

    def __init__(self, flat: FlatParameters, lr: float) -> None:
        self.flat, self.lr = flat, lr
        # Optimizer state (moments) by name.
        self.moments: dict[str, Tensor] = {}

    def begin(self, timestep: int) -> None:  # noqa: B027, most have no other schedule
        """An update begins after so many environment steps; for schedules besides that of `lr`."""

    @abstractmethod
    def step(self) -> None:
        """Update the parameters once."""

    def remember(self, name: str, fill: float = 0.0) -> Tensor:
        """Create a state vector of the parameters' size, which checkpoints include."""
        self.moments[name] = torch.full_like(self.flat.vector, fill)
        return self.moments[name]

    def state(self) -> State:
        """Copies of the optimizer state."""
        return {"type": type(self).__name__} | {
            name: value.cpu().numpy().copy() for name, value in self.moments.items()
        }

    def set_state(self, state: State) -> None:
        """Restore what `state` returned."""
        for name, value in self.moments.items():
            value.copy_(torch.from_numpy(np.array(state[name])))


class Adam(Optimizer):
    """Kingma & Ba 2015, algorithm 1, by torch's fused kernel; arguments are those of `torch.optim.Adam`."""

    kernel: ClassVar[Any] = staticmethod(torch._fused_adam_)

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
        super().__init__(flat, lr)
        self.betas, self.eps, self.weight_decay, self.amsgrad = betas, eps, weight_decay, amsgrad
        self.step_count = self.moments["step"] = torch.zeros((), device=flat.vector.device)
        self.exp_avg, self.exp_avg_sq = self.remember("exp_avg"), self.remember("exp_avg_sq")
        self.max_exp_avg_sq = [self.remember("max_exp_avg_sq")] if amsgrad else []

    def step(self) -> None:
        """Update the parameters once."""
        self.step_count += 1
        self.kernel(
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

    def set_state(self, state: State) -> None:
        """Restore what `state` returned; if amsgrad was just enabled, the largest moments start from zero."""
        if self.amsgrad and "max_exp_avg_sq" not in state:
            log.warning("optimizer.amsgrad=True: the checkpoint was written without it, so it starts from zero")
            state = state | {"max_exp_avg_sq": np.zeros_like(state["exp_avg_sq"])}
        super().set_state(state)


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019, algorithm 2)."""

    kernel: ClassVar[Any] = staticmethod(torch._fused_adamw_)

    def __init__(self, flat: FlatParameters, lr: float, *, weight_decay: float = 0.01, **arguments: Any) -> None:
        """Arguments are those of `torch.optim.AdamW`."""
        super().__init__(flat, lr, weight_decay=weight_decay, **arguments)
