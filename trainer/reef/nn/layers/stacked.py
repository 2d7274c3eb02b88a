"""Several multilayer perceptrons of the same shape in one batched pass."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from reef.nn.layers.activations import ACTIVATIONS


class StackedLinear(nn.Module):
    """`count` linear layers of the same shape, computed in one batched product."""

    def __init__(self, in_features: int, out_features: int, count: int) -> None:
        """Weights are orthogonal with gain sqrt(2), biases 0."""
        super().__init__()
        weight = torch.empty(count, in_features, out_features)
        for single in weight:
            nn.init.orthogonal_(single, math.sqrt(2))
        self.weight = nn.Parameter(weight)  # [count, in, out]
        self.bias = nn.Parameter(torch.zeros(count, 1, out_features))

    def forward(self, x: Tensor) -> Tensor:
        """[count, N, in] -> [count, N, out]."""
        return torch.baddbmm(self.bias, x, self.weight)

    def forward_branch(self, index: int, x: Tensor) -> Tensor:
        """Layer `index` only: [N, in] -> [N, out]."""
        return torch.addmm(self.bias[index], x, self.weight[index])


class StackedMLP(nn.Module):
    """`count` perceptrons without an output layer: [N, in] -> [count, N, out].

    An actor and its critic, or the members of an ensemble, need one chain of batched products instead of `count`
    chains; at the network sizes of reinforcement learning, the overhead of the calls dominates.
    """

    def __init__(self, in_features: int, hiddens: Sequence[int], activation: str, count: int = 1) -> None:
        """`hiddens` may be empty: then the output is the input."""
        super().__init__()
        self.count = count
        self.activation = ACTIVATIONS[activation]
        sizes = [in_features, *hiddens]
        self.layers: Any = nn.ModuleList(StackedLinear(i, o, count) for i, o in itertools.pairwise(sizes))
        self.out_features = sizes[-1]

    def forward(self, x: Tensor) -> Tensor:
        """[N, in] or [count, N, in] -> [count, N, out]."""
        hidden = x if x.dim() == 3 else x.expand(self.count, *x.shape)
        for layer in self.layers:
            hidden = self.activation(layer(hidden))
        return hidden

    def forward_branch(self, index: int, x: Tensor) -> Tensor:
        """Perceptron `index` only: [N, in] -> [N, out]."""
        for layer in self.layers:
            x = self.activation(layer.forward_branch(index, x))
        return x
