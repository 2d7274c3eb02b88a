"""In-place activations, with the derivative of those for which the output is enough to compute it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from reef.nn.layers.activations import ACTIVATIONS, FEW, Activation
from reef.types import Array


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
