"""Layers without autograd and modules: in torch, where a forward pass saves what its backward pass needs, and in NumPy.

For the small networks of reinforcement learning, autograd and parameter lookup in modules take as long as the
arithmetic. Parameters are looked up once; `FlatParameters` fixes their place, and that of their gradients, in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reef.nn.layers.activations import FAST_ACTIVATIONS, FastActivation
from reef.nn.layers.encoders import Encoder
from reef.nn.layers.stacked import StackedMLP
from reef.types import Array

# Largest number of multiplications for which OpenBLAS uses a single thread; more threads would disturb torch's.
ONE_THREAD = 2**18
# Maximum number of row blocks, and minimum rows per block for using a second one; for more rows torch is faster.
MOST_BLOCKS, WIDE_BLOCK = 2, 8

Layer = tuple[Tensor, Tensor]  # weight [in, out] and bias [out]


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

    def backward(self, x: Tensor, gradient: Tensor, out: Tensor | None = None) -> Tensor:
        """Return the gradient of the input `x` [N, in], into `out`, from that of the output [N, out]."""
        torch.mm(gradient.t(), x, out=self.weight_gradient)
        torch.sum(gradient, 0, out=self.bias_gradient)
        return torch.mm(gradient, self.weight, out=out)


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
            hidden.append(self.activation.of_layer(layer.bias, hidden[-1], layer.weight))
        return hidden

    def backward(self, hidden: Sequence[Tensor], gradient: Tensor) -> None:
        """Backward pass from what `forward` returned; overwrites the gradient of its last entry [count, N, out]."""
        for layer, x, output in zip(reversed(self.layers), reversed(hidden[:-1]), reversed(hidden), strict=False):
            gradient = self.activation.gradient(gradient, output)
            torch.bmm(x.transpose(1, 2), gradient, out=layer.weight_gradient)
            torch.sum(gradient, 1, keepdim=True, out=layer.bias_gradient)
            if layer is not self.layers[0]:
                gradient = torch.bmm(gradient, layer.weight.transpose(1, 2))


class FastEncoder:
    """An `Encoder` of vectors: observations [N, *obs] -> features [branches, N, F]."""

    def __init__(self, encoder: Encoder) -> None:
        self.stack = FastStack(encoder.mlp)
        self.features = None if encoder.plain else encoder.features[0]

    def forward(self, obs: Tensor) -> list[Tensor]:
        """As `FastStack.forward`."""
        return self.stack.forward(obs if self.features is None else self.features(obs))

    @staticmethod
    def covers(encoder: Encoder) -> bool:
        """Whether it is exactly an `Encoder`, with hidden layers and without layers before them."""
        known = encoder.mlp.activation in FAST_ACTIVATIONS
        return type(encoder) is Encoder and known and not encoder.has_image and len(encoder.mlp.layers) > 0


class ArrayMLP:
    """[N, in] -> [N, out] with parameters on the CPU at a fixed place in memory: hidden layers, then an output layer.

    For a few rows, calls of torch cost more than the arithmetic, and evict the environments' code from the caches.
    """

    def __init__(self, hidden: Sequence[Layer], last: Layer | None, activation: FastActivation) -> None:
        """The `last` layer, if there is one, has no activation."""
        self.layers, self.depth, self.activation = [*hidden, *([last] if last else [])], len(hidden), activation
        self.arrays = [(weight.numpy(), bias.numpy()) for weight, bias in self.layers]
        self.block = ONE_THREAD // max([1, *(weight.numel() for weight, _ in self.layers)])  # rows
        self.few_rows = self.block * (MOST_BLOCKS if self.block >= WIDE_BLOCK else 1)

    @classmethod
    def of(cls, encoder: Encoder, last: nn.Linear | None = None) -> ArrayMLP:
        """The first branch of an encoder, which acts, and the `last` layer."""
        hidden = [(layer.weight.detach()[0], layer.bias.detach()[0, 0]) for layer in encoder.mlp.layers]
        return cls(hidden, None if last is None else array_layer(last), FAST_ACTIVATIONS[encoder.mlp.activation])

    @staticmethod
    def covers(encoder: Encoder, device: torch.device) -> bool:
        """Whether it is exactly an `Encoder` of vectors of numbers, on the CPU."""
        known = encoder.mlp.activation in FAST_ACTIVATIONS
        return type(encoder) is Encoder and encoder.plain and known and device.type == "cpu"

    def __call__(self, x: Array) -> Array:
        """[N, in] -> [N, out]."""
        if len(x) > self.few_rows:
            return self._in_torch(torch.from_numpy(x)).numpy()
        if len(x) <= self.block:
            return self._in_numpy(x)
        blocks = [self._in_numpy(x[start : start + self.block]) for start in range(0, len(x), self.block)]
        return np.concatenate(blocks)

    def _in_numpy(self, x: Array) -> Array:
        for index, (weight, bias) in enumerate(self.arrays):
            x = x @ weight
            x += bias
            if index < self.depth:
                x = self.activation.of_array(x)
        return x

    def _in_torch(self, x: Tensor) -> Tensor:
        for index, (weight, bias) in enumerate(self.layers):
            x = (self.activation.of_layer if index < self.depth else torch.addmm)(bias, x, weight)
        return x


def array_layer(layer: Any) -> Layer:
    """The parameters of an `nn.Linear`."""
    return layer.weight.detach().t(), layer.bias.detach()
