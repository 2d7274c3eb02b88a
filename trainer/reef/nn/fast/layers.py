"""Layers without autograd and modules: forward passes that save what their backward passes need.

For the small networks of reinforcement learning, autograd and parameter lookup in modules take as long as the
arithmetic. Parameters are looked up once; `FlatParameters` fixes their place, and that of their gradients, in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from reef.nn.fast.activations import FAST_ACTIVATIONS
from reef.nn.layers.stacked import StackedMLP


class LinearParameters(NamedTuple):
    """The parameters of a linear layer and their gradients, which a backward pass overwrites."""

    weight: Tensor
    bias: Tensor
    weight_gradient: Tensor
    bias_gradient: Tensor

    @staticmethod
    def of(layer: Any) -> LinearParameters:
        """Look up `weight` and `bias` of a layer whose parameters `FlatParameters` manages."""
        return LinearParameters(layer.weight.detach(), layer.bias.detach(), layer.weight.grad, layer.bias.grad)

    def forward(self, x: Tensor) -> Tensor:
        """[N, in] -> [N, out]."""
        return F.linear(x, self.weight, self.bias)

    def backward(self, x: Tensor, gradient: Tensor) -> Tensor:
        """Return the gradient of the input `x` [N, in] from that of the output [N, out]."""
        torch.mm(gradient.t(), x, out=self.weight_gradient)
        torch.sum(gradient, 0, out=self.bias_gradient)
        return gradient @ self.weight


class FastStack:
    """The perceptrons of a `StackedMLP`: [N, in] or [count, N, in] -> [count, N, out]."""

    def __init__(self, stack: StackedMLP) -> None:
        """Raises KeyError for an activation without a known derivative."""
        self.count, self.activation = stack.count, FAST_ACTIVATIONS[stack.activation]
        self.layers = [LinearParameters.of(layer) for layer in stack.layers]

    def forward(self, x: Tensor) -> list[Tensor]:
        """Return the input [count, N, in] and the output of every layer."""
        hidden = [x if x.dim() == 3 else x.expand(self.count, *x.shape)]
        for layer in self.layers:
            hidden.append(self.activation.in_place(torch.baddbmm(layer.bias, hidden[-1], layer.weight)))
        return hidden

    def backward(self, hidden: Sequence[Tensor], gradient: Tensor) -> None:
        """Backward pass from what `forward` returned and the gradient of its last entry [count, N, out]."""
        for layer, x, output in zip(reversed(self.layers), reversed(hidden[:-1]), reversed(hidden), strict=False):
            gradient = self.activation.gradient(gradient, output)
            torch.bmm(x.transpose(1, 2), gradient, out=layer.weight_gradient)
            torch.sum(gradient, 1, keepdim=True, out=layer.bias_gradient)
            if layer is not self.layers[0]:
                gradient = torch.bmm(gradient, layer.weight.transpose(1, 2))
