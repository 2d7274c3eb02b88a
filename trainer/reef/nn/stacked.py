"""Several multilayer perceptrons of one shape, side by side in one batched pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": F.relu,
    "silu": F.silu,
    "swish": F.silu,
    "elu": F.elu,
    "gelu": F.gelu,
    "linear": lambda x: x,
}


class StackedMLP(nn.Module):
    """`count` perceptrons without an output layer: [N, in] -> [count, N, out].

    An actor and its critic, or the members of an ensemble, cost one chain of batched products instead of `count`
    chains, which at the sizes of reinforcement learning are bound by the overhead of the calls.
    """

    def __init__(self, in_features: int, hiddens: Sequence[int], activation: str, count: int = 1) -> None:
        """`hiddens` may be empty: then the input is passed on."""
        super().__init__()
        self.count = count
        self.activation = ACTIVATIONS[activation]
        self.out_features = hiddens[-1] if hiddens else in_features
        self.weights = nn.ParameterList()  # [count, in, out] each
        self.biases = nn.ParameterList()  # [count, 1, out] each
        for size in hiddens:
            weight = torch.empty(count, in_features, size)
            for single in weight:
                nn.init.orthogonal_(single, math.sqrt(2))
            self.weights.append(nn.Parameter(weight))
            self.biases.append(nn.Parameter(torch.zeros(count, 1, size)))
            in_features = size
        self.layers = list(zip(self.weights, self.biases, strict=True))  # a plain list: ParameterList is slow to walk

    def forward(self, x: Tensor) -> Tensor:
        """[N, in] or [count, N, in] -> [count, N, out]."""
        hidden = x if x.dim() == 3 else x.expand(self.count, *x.shape)
        for weight, bias in self.layers:
            hidden = self.activation(torch.baddbmm(bias, hidden, weight))
        return hidden

    def single(self, index: int, x: Tensor) -> Tensor:
        """Only perceptron `index`: [N, in] -> [N, out]."""
        for weight, bias in self.layers:
            x = self.activation(torch.addmm(bias[index], x, weight[index]))
        return x
