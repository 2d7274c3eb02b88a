"""Several multilayer perceptrons of one shape, side by side in one batched pass."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.compiler import is_compiling

from reef.nn.activations import ACTIVATIONS, Activation


class _Chain(torch.autograd.Function):
    """Stacked layers with an activation each, as one node of autograd: [count, N, in] -> [count, N, out].

    A node per operation costs, at the sizes of reinforcement learning, more than the operations.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, activation: Activation, *parameters: Tensor) -> Tensor:
        """`parameters`: weight [count, in, out] and bias [count, 1, out] of each layer in turn."""
        weights, biases = parameters[::2], parameters[1::2]
        assert activation.in_place is not None
        hidden = [x]
        for weight, bias in zip(weights, biases, strict=True):
            hidden.append(activation.in_place(torch.baddbmm(bias, hidden[-1], weight)))
        ctx.activation = activation
        ctx.save_for_backward(*hidden, *weights)
        return hidden[-1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The chain rule, from the last layer to the first."""
        depth = len(ctx.saved_tensors) // 2
        hidden, weights = ctx.saved_tensors[: depth + 1], ctx.saved_tensors[depth + 1 :]
        of_parameters: list[Tensor] = []
        of_input: Tensor | None = None
        for layer in reversed(range(depth)):
            gradient = ctx.activation.slope(gradient, hidden[layer + 1])
            of_weight = torch.bmm(hidden[layer].transpose(1, 2), gradient)
            of_parameters[:0] = [of_weight, gradient.sum(1, keepdim=True)]
            if layer > 0:
                gradient = torch.bmm(gradient, weights[layer].transpose(1, 2))
            elif ctx.needs_input_grad[0]:
                of_input = torch.bmm(gradient, weights[0].transpose(1, 2))
        return of_input, None, *of_parameters


class StackedLinear(nn.Module):
    """`count` linear layers of one shape, side by side."""

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

    def single(self, index: int, x: Tensor) -> Tensor:
        """Only layer `index`: [N, in] -> [N, out]."""
        return torch.addmm(self.bias[index], x, self.weight[index])


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
        sizes = [in_features, *hiddens]
        self.chain = [StackedLinear(i, o, count) for i, o in itertools.pairwise(sizes)]
        self.layers = nn.ModuleList(self.chain)  # registers them; slower to walk than the plain list
        self.out_features = sizes[-1]
        self.settled: list[list[tuple[Tensor, Tensor]]] = []  # bias and weight of each layer, by perceptron

    def settle(self) -> None:
        """Look up the parameters for acting, once; call it when they stay where they are in memory.

        To look them up costs, for a few observations, as much as to multiply by them.
        """
        self.settled = [
            [(layer.bias.detach()[index], layer.weight.detach()[index]) for layer in self.chain]
            for index in range(self.count)
        ]

    def forward(self, x: Tensor) -> Tensor:
        """[N, in] or [count, N, in] -> [count, N, out]."""
        hidden = x if x.dim() == 3 else x.expand(self.count, *x.shape)
        if self.chain and self.activation.slope is not None and torch.is_grad_enabled() and not is_compiling():
            parameters = itertools.chain.from_iterable((layer.weight, layer.bias) for layer in self.chain)
            return _Chain.apply(hidden, self.activation, *parameters)  # type: ignore[no-any-return, no-untyped-call]
        for layer in self.chain:
            hidden = self.activation(layer(hidden))
        return hidden

    def single(self, index: int, x: Tensor) -> Tensor:
        """Only perceptron `index`: [N, in] -> [N, out]."""
        if self.settled and not torch.is_grad_enabled():
            activate = self.activation.in_place or self.activation.function
            for bias, weight in self.settled[index]:
                x = activate(torch.addmm(bias, x, weight))
            return x
        for layer in self.chain:
            x = self.activation(layer.single(index, x))
        return x
