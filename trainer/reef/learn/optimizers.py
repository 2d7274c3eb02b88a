"""The optimizers besides Adam, and the choice by the settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from reef.config.groups.training import OptimizerConfig
from reef.errors import ConfigError
from reef.learn.adam import Adam, AdamW, Optimizer
from reef.nn.flat import FlatParameters
from reef.schedules import Schedule
from reef.types import State


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


class TorchOptimizers(Optimizer):
    """Optimizers of torch, by name, each for some of the parameters; for `Learner.configure_optimizer`.

    One alone follows the setting `lr`. In a pair (optimizer, rate) it has a rate of its own, a number or a schedule
    [[timestep, value], ...]. Parameters that learn at another rate have another optimizer, not a group with an own one.
    """

    def __init__(
        self,
        flat: FlatParameters,
        lr: float,
        optimizers: Mapping[str, torch.optim.Optimizer | tuple[torch.optim.Optimizer, Any]],
    ) -> None:
        """Raises ConfigError unless each parameter of `flat` is in exactly one of them, with one rate in each."""
        pairs = {name: given if isinstance(given, tuple) else (given, None) for name, given in optimizers.items()}
        self.optimizers = {name: optimizer for name, (optimizer, _) in pairs.items()}
        self.schedules = {name: Schedule(rate) for name, (_, rate) in pairs.items() if rate is not None}
        groups = [group for optimizer in self.optimizers.values() for group in optimizer.param_groups]
        taken = sorted(id(parameter) for group in groups for parameter in group["params"])
        if taken != sorted(id(parameter) for parameter in flat.parameters):
            raise ConfigError(
                f"configure_optimizer: the optimizers {sorted(self.optimizers)} have {len(taken)} parameters, expected "
                f"each of the {len(flat.parameters)} of the policy in exactly one of them."
            )
        for name, optimizer in self.optimizers.items():
            if len(rates := {float(group["lr"]) for group in optimizer.param_groups}) > 1:
                raise ConfigError(
                    f"configure_optimizer: the groups of {name!r} have the rates {sorted(rates)}, but one would be "
                    "set for all. Make an optimizer of each group, in pairs (optimizer, rate)."
                )
        super().__init__(flat, lr)
        self.begin(0)

    @property
    def lr(self) -> float:
        """The rate by the settings."""
        return self._lr

    @lr.setter
    def lr(self, rate: float) -> None:
        self._lr = rate
        for name in self.optimizers.keys() - self.schedules.keys():
            self._set_rate(name, rate)

    def begin(self, timestep: int) -> None:
        """Set the rates that have a schedule of their own."""
        for name, schedule in self.schedules.items():
            self._set_rate(name, schedule(timestep))

    def _set_rate(self, name: str, rate: float) -> None:
        for group in self.optimizers[name].param_groups:
            group["lr"] = rate

    def step(self) -> None:
        """A step of each."""
        for optimizer in self.optimizers.values():
            optimizer.step()

    def state(self) -> State:
        """Copies of what the optimizers remember of each parameter, by "optimizer.parameter.name"."""
        remembered = {name: optimizer.state_dict()["state"] for name, optimizer in self.optimizers.items()}
        return {"type": type(self).__name__} | {
            f"{name}.{index}.{key}": torch.as_tensor(value).cpu().numpy().copy()
            for name, by_parameter in remembered.items()
            for index, own in by_parameter.items()
            for key, value in own.items()
            if value is not None
        }

    def set_state(self, state: State) -> None:
        """Restore what `state` returned."""
        for name, optimizer in self.optimizers.items():
            found: dict[int, dict[str, Tensor]] = {}
            for key, value in state.items():
                if key.startswith(f"{name}."):
                    index, _, what = key.removeprefix(f"{name}.").partition(".")
                    found.setdefault(int(index), {})[what] = torch.from_numpy(np.array(value))
            optimizer.load_state_dict({**optimizer.state_dict(), "state": found})


def _decayed(flat: FlatParameters, weight_decay: float) -> Tensor:
    """The gradient with the L2 penalty `weight_decay` added."""
    return flat.gradient.add(flat.vector, alpha=weight_decay) if weight_decay else flat.gradient


OPTIMIZERS: dict[str, type[Optimizer]] = {kind.__name__: kind for kind in (Adam, AdamW, RMSprop, RMSpropTF, SGD)}


def make_optimizer(flat: FlatParameters, lr: float, settings: OptimizerConfig) -> Optimizer:
    """Make the optimizer for these settings."""
    make: Any = OPTIMIZERS[settings.type]
    made: Optimizer = make(flat, lr, **settings.arguments())
    return made
