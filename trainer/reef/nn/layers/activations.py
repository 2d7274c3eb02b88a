"""Activations of multilayer perceptrons."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

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
