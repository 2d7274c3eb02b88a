"""Optimizers for one flat vector.

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

from reef.config.optimizer import OptimizerConfig
from reef.nn.flat import FlatParameters
from reef.types import State

log = logging.getLogger(__name__)


class Optimizer(ABC):
    """Updates a flat vector by its gradient with learning rate `lr`, which may be changed at any time."""

    def __init__(self, flat: FlatParameters, lr: float) -> None:
        self.flat, self.lr = flat, lr
        # Optimizer state (moments) by name.
        self.moments: dict[str, Tensor] = {}

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


class RMSprop(Optimizer):
    """Divides the gradient by the root of a running mean of squared gradients (Hinton 2012, lecture 6e).

    Arguments are those of `torch.optim.RMSprop`.
    """

    first_square: ClassVar[float] = 0.0

    def __init__(
        self,
        flat: FlatParameters,
        lr: float,
        *,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
    ) -> None:
        super().__init__(flat, lr)
        self.alpha, self.eps, self.weight_decay, self.momentum = alpha, eps, weight_decay, momentum
        self.square_avg = self.remember("square_avg", self.first_square)
        self.grad_avg = self.remember("grad_avg") if centered else None
        self.momentum_buffer = self.remember("momentum_buffer") if momentum else None

    def step(self) -> None:
        """Update the parameters once."""
        gradient = _decayed(self.flat, self.weight_decay)
        self.square_avg.mul_(self.alpha).addcmul_(gradient, gradient, value=1 - self.alpha)
        variance = self.square_avg
        if self.grad_avg is not None:
            self.grad_avg.lerp_(gradient, 1 - self.alpha)
            variance = torch.addcmul(variance, self.grad_avg, self.grad_avg, value=-1.0)
        self.move(gradient / self.deviation(variance))

    def deviation(self, variance: Tensor) -> Tensor:
        """The divisor of the gradient."""
        return variance.sqrt().add_(self.eps)

    def move(self, direction: Tensor) -> None:
        """Move along `direction`, with momentum if enabled."""
        if self.momentum_buffer is not None:
            direction = self.momentum_buffer.mul_(self.momentum).add_(direction)
        self.flat.vector.add_(direction, alpha=-self.lr)


class RMSpropTF(RMSprop):
    """RMSprop as in TensorFlow: the running mean starts at 1, eps is inside the root, momentum sums whole steps.

    The published results of A3C and IMPALA used it.
    """

    first_square: ClassVar[float] = 1.0

    def deviation(self, variance: Tensor) -> Tensor:
        """The divisor of the gradient."""
        return (variance + self.eps).sqrt_()

    def move(self, direction: Tensor) -> None:
        """Move along `direction`, with momentum if enabled."""
        if self.momentum_buffer is None:
            self.flat.vector.add_(direction, alpha=-self.lr)
        else:
            self.flat.vector.sub_(self.momentum_buffer.mul_(self.momentum).add_(direction, alpha=self.lr))


class SGD(Optimizer):
    """Gradient descent with optional momentum; arguments are those of `torch.optim.SGD`."""

    def __init__(
        self,
        flat: FlatParameters,
        lr: float,
        *,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        super().__init__(flat, lr)
        self.momentum, self.dampening, self.weight_decay, self.nesterov = momentum, dampening, weight_decay, nesterov
        self.momentum_buffer = self.remember("momentum_buffer") if momentum else None
        # The first gradient is not dampened.
        self.step_count = self.moments["step"] = torch.zeros((), device=flat.vector.device)

    def step(self) -> None:
        """Update the parameters once."""
        gradient = _decayed(self.flat, self.weight_decay)
        if self.momentum_buffer is not None:
            share = 1 - self.dampening if self.step_count else 1.0
            self.momentum_buffer.mul_(self.momentum).add_(gradient, alpha=share)
            following = gradient.add(self.momentum_buffer, alpha=self.momentum)
            gradient = following if self.nesterov else self.momentum_buffer
        self.step_count += 1
        self.flat.vector.add_(gradient, alpha=-self.lr)


def _decayed(flat: FlatParameters, weight_decay: float) -> Tensor:
    """The gradient with the L2 penalty `weight_decay` added."""
    return flat.gradient.add(flat.vector, alpha=weight_decay) if weight_decay else flat.gradient


OPTIMIZERS: dict[str, type[Optimizer]] = {kind.__name__: kind for kind in (Adam, AdamW, RMSprop, RMSpropTF, SGD)}


def make_optimizer(flat: FlatParameters, lr: float, settings: OptimizerConfig) -> Optimizer:
    """Make the optimizer for these settings."""
    make: Any = OPTIMIZERS[settings.type]
    made: Optimizer = make(flat, lr, **settings.arguments())
    return made
