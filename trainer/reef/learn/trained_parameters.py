"""Parameters trained by one loss: gradient, average over the learners, clipping, optimizer step."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from reef.config import AlgorithmConfig
from reef.errors import TrainingError
from reef.learn.adam import Optimizer
from reef.learn.optimizers import make_optimizer
from reef.nn.flat import FlatParameters
from reef.nn.gradients import SHARE, Columns, Gradient, Loss
from reef.schedules import Schedule
from reef.types import State

Reduce = Callable[[Tensor], None]  # averages a flat gradient over all learners, in place


class TrainedParameters:
    """One flat parameter vector with its gradient, optimizer and learning rate schedule."""

    def __init__(
        self,
        flat: FlatParameters,
        gradient: Gradient,
        config: AlgorithmConfig,
        *,
        lr: Any,  # a number, or [[timestep, value], ...]
        reduce: Reduce | None = None,
        names: tuple[str, str] = ("total_loss", "grad_gnorm"),
        optimizer: Callable[[FlatParameters, float], Optimizer] | None = None,
    ) -> None:
        """`config` defines clipping, and the optimizer unless one is made by `optimizer`.

        `names` are those of the two statistics of a step.
        """
        self.flat, self.gradient, self.reduce, self.names = flat, gradient, reduce, names
        self.grad_clip, self.grad_clip_by = config.grad_clip, config.grad_clip_by
        self.schedule = Schedule(lr)
        make = optimizer or partial(make_optimizer, settings=config.optimizer)
        self.optimizer = make(flat, self.schedule(0))

    def begin(self, timestep: int) -> None:
        """Set the learning rate for this number of environment steps."""
        self.optimizer.lr = self.schedule(timestep)
        self.optimizer.begin(timestep)

    def descend(self, minibatch: Columns) -> Loss:
        """One gradient step; raises TrainingError, with unchanged parameters, if the gradient is not finite.

        Returns the loss with its statistics, its value, and the norm of the gradient before clipping.
        """
        flat = self.flat
        flat.gradient.zero_()
        loss = self.gradient(minibatch)
        if self.reduce is not None:
            if SHARE in minibatch:
                flat.gradient *= minibatch[SHARE]
            self.reduce(flat.gradient)
        norm = flat.gradient.norm()
        length = norm.item()
        if not math.isfinite(length):
            raise not_finite(loss.value.item(), length, minibatch)
        self.step(length)
        return loss._replace(stats=loss.stats | dict(zip(self.names, (loss.value, norm), strict=True)))

    def step(self, length: float) -> None:
        """Clip the gradient, whose L2 norm is `length`, and take a step of the optimizer."""
        clip_gradient(self.flat, length, self.grad_clip, self.grad_clip_by)
        frozen = self.flat.frozen()
        self.optimizer.step()
        for parameter, before in frozen:  # momentum would change it
            parameter.detach().copy_(before)

    def state(self) -> State:
        """The optimizer's state."""
        return self.optimizer.state()

    def set_state(self, state: State) -> None:
        """Restore what `state` returned."""
        self.optimizer.set_state(state)


def not_finite(loss: float, norm: float, minibatch: Columns) -> TrainingError:
    """The error for a NaN or infinite loss or gradient norm; it names the columns with such values."""
    guilty = [name for name, column in minibatch.items() if not torch.isfinite(column).all()]
    cause = f"the columns {guilty} hold NaN or infinite values" if guilty else "its inputs are finite"
    error = TrainingError(
        f"loss {loss} with gradient norm {norm} is not finite ({cause}); the step was not taken. "
        "Lower lr, set grad_clip, or check the environment's rewards and observations."
    )
    error.statistics = {"total_loss": loss, "grad_gnorm": norm}
    return error


def clip_gradient(flat: FlatParameters, norm: float, limit: float | None, by: str) -> None:
    """Clip in place: each entry ("value"), each tensor's L2 norm ("norm"), or the total L2 norm ("global_norm").

    `norm` is the L2 norm of the whole gradient, a number; with `limit` None nothing is clipped.
    """
    if limit is None:
        return
    if by == "value":
        flat.gradient.clamp_(-limit, limit)
    elif by == "norm":
        for parameter in flat.parameters:
            if parameter.grad is not None:
                parameter.grad.mul_((limit / (parameter.grad.norm() + 1e-6)).clamp(max=1.0))
    elif norm > limit:
        flat.gradient.mul_(limit / (norm + 1e-6))
