"""Activations of multilayer perceptrons, with the derivative of those that show it in their output."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from reef.types import Array

FEW = 2048  # numbers for which one call of `torch.tanh` is faster than four of others


def tanh(x: Tensor) -> Tensor:
    """2 sigmoid(2 x) - 1: on the CPU a fifth of the time of `torch.tanh`, equal to it within 1e-6."""
    return torch.tanh(x) if x.numel() < FEW else 2 * torch.sigmoid(2 * x) - 1


def _tanh_in_place(x: Tensor) -> Tensor:
    return x.tanh_() if x.numel() < FEW else x.mul_(2).sigmoid_().mul_(2).sub_(1)


def _array_tanh(x: Array) -> Array:
    return np.tanh(x, out=x)


def _array_relu(x: Array) -> Array:
    return np.maximum(x, 0, out=x)


def _tanh_slope(gradient: Tensor, output: Tensor) -> Tensor:
    return torch.ops.aten.tanh_backward(gradient, output)  # type: ignore[no-any-return]


def _relu_slope(gradient: Tensor, output: Tensor) -> Tensor:
    return torch.ops.aten.threshold_backward(gradient, output, 0)  # type: ignore[no-any-return]


class Activation(NamedTuple):
    """A function, and where the output alone says its derivative, what a backward pass written by hand needs."""

    function: Callable[[Tensor], Tensor]
    in_place: Callable[[Tensor], Tensor] | None = None  # the function, overwriting its argument
    slope: Callable[[Tensor, Tensor], Tensor] | None = None  # (gradient, output) -> gradient of the argument
    of_array: Callable[[Array], Array] | None = None  # the same in NumPy, overwriting its argument

    def __call__(self, x: Tensor) -> Tensor:
        """[...] -> [...]."""
        return self.function(x)


ACTIVATIONS: dict[str, Activation] = {
    "tanh": Activation(tanh, _tanh_in_place, _tanh_slope, _array_tanh),
    "relu": Activation(F.relu, torch.relu_, _relu_slope, _array_relu),
    "linear": Activation(lambda x: x, lambda x: x, lambda gradient, _: gradient, lambda x: x),
    "silu": Activation(F.silu),
    "swish": Activation(F.silu),
    "elu": Activation(F.elu),
    "gelu": Activation(F.gelu),
}
