"""Activations, and for some of them the forms that nn/fast uses: in place, and with a derivative."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from reef.types import Array

# Up to this number of elements, one call of `torch.tanh` is faster than four calls of other functions.
FEW = 2048


class Activation(NamedTuple):
    """An elementwise activation function."""

    function: Callable[[Tensor], Tensor]

    def __call__(self, x: Tensor) -> Tensor:
        """[...] -> [...]."""
        return self.function(x)


def tanh(x: Tensor) -> Tensor:
    """2 sigmoid(2 x) - 1: on the CPU it takes a fifth of the time of `torch.tanh`, and is equal within 1e-6."""
    return torch.tanh(x) if x.numel() < FEW else 2 * torch.sigmoid(2 * x) - 1


def linear(x: Tensor) -> Tensor:
    """The identity."""
    return x


ACTIVATIONS: dict[str, Activation] = {
    "tanh": Activation(tanh),
    "relu": Activation(F.relu),
    "linear": Activation(linear),
    "silu": Activation(F.silu),
    "swish": Activation(F.silu),
    "elu": Activation(F.elu),
    "gelu": Activation(F.gelu),
}


class FastActivation(NamedTuple):
    """Three other forms of an activation function."""

    in_place: Callable[[Tensor], Tensor]
    gradient: Callable[[Tensor, Tensor], Tensor]  # (gradient, output) -> gradient of the argument
    of_array: Callable[[Array], Array]  # in place


def _tanh_in_place(x: Tensor) -> Tensor:
    return x.tanh_() if x.numel() < FEW else x.mul_(2).sigmoid_().mul_(2).sub_(1)


def _tanh_gradient(gradient: Tensor, output: Tensor) -> Tensor:
    return torch.ops.aten.tanh_backward(gradient, output)  # type: ignore[no-any-return]


def _relu_gradient(gradient: Tensor, output: Tensor) -> Tensor:
    return torch.ops.aten.threshold_backward(gradient, output, 0)  # type: ignore[no-any-return]


FAST_ACTIVATIONS: dict[Activation, FastActivation] = {
    ACTIVATIONS["tanh"]: FastActivation(_tanh_in_place, _tanh_gradient, lambda x: np.tanh(x, out=x)),
    ACTIVATIONS["relu"]: FastActivation(torch.relu_, _relu_gradient, lambda x: np.maximum(x, 0, out=x)),
    ACTIVATIONS["linear"]: FastActivation(lambda x: x, lambda gradient, _: gradient, lambda x: x),
}
