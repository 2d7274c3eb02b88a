"""The optimizers besides Adam, and the choice by the settings."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from reef.config.groups.training import OptimizerConfig
from reef.learn.adam import Adam, AdamW, Optimizer
from reef.nn.flat import FlatParameters


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
