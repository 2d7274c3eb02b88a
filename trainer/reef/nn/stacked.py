"""Several multilayer perceptrons of one shape, side by side in one batched pass."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.compiler import is_compiling

from reef.nn.activations import ACTIVATIONS, Activation
from reef.nn.flat import Settled


def _trace(activation: Activation, x: Tensor, layers: Iterable[tuple[Tensor, Tensor]]) -> list[Tensor]:
    """The input [count, N, in] and the output of every layer (weight, bias) after it."""
    assert activation.in_place is not None
    hidden = [x]
    for weight, bias in layers:
        hidden.append(activation.in_place(torch.baddbmm(bias, hidden[-1], weight)))
    return hidden


def _chain_rule(
    activation: Activation, hidden: Sequence[Tensor], weights: Sequence[Tensor], gradient: Tensor
) -> Iterator[Tensor]:
    """From the last layer to the first the gradient before its activation, then that of the input."""
    assert activation.slope is not None
    for weight, output in zip(reversed(weights), reversed(hidden), strict=False):
        gradient = activation.slope(gradient, output)
        yield gradient
        gradient = torch.bmm(gradient, weight.transpose(1, 2))
    yield gradient


class _Chain(torch.autograd.Function):
    """Stacked layers with an activation each, as one node of autograd: [count, N, in] -> [count, N, out].

    A node per operation costs, at the sizes of reinforcement learning, more than the operations.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, activation: Activation, *parameters: Tensor) -> Tensor:
        """`parameters`: weight [count, in, out] and bias [count, 1, out] of each layer in turn."""
        weights = parameters[::2]
        hidden = _trace(activation, x, zip(weights, parameters[1::2], strict=True))
        ctx.activation = activation
        ctx.save_for_backward(*hidden, *weights)
        return hidden[-1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The chain rule, from the last layer to the first."""
        depth = len(ctx.saved_tensors) // 2
        hidden, weights = ctx.saved_tensors[: depth + 1], ctx.saved_tensors[depth + 1 :]
        before = _chain_rule(ctx.activation, hidden, weights, gradient)
        of_parameters: list[Tensor] = []
        for layer in reversed(range(depth)):
            gradient = next(before)
            of_weight = torch.bmm(hidden[layer].transpose(1, 2), gradient)
            of_parameters[:0] = [of_weight, gradient.sum(1, keepdim=True)]
        of_input = next(before) if ctx.needs_input_grad[0] else None
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
        self.has_slope = self.activation.slope is not None
        sizes = [in_features, *hiddens]
        self.chain = [StackedLinear(i, o, count) for i, o in itertools.pairwise(sizes)]
        self.layers = nn.ModuleList(self.chain)  # registers them; slower to walk than the plain list
        self.out_features = sizes[-1]
        self.settled: list[Settled] = []
        self.singles: list[list[tuple[Tensor, Tensor]]] = []  # weight and bias of each layer, by perceptron

    def settle(self) -> None:
        """Look up the parameters, once; call it when they stay where they are in memory."""
        self.settled = [Settled.of(layer) for layer in self.chain]
        self.singles = [[(layer.weight[i], layer.bias[i, 0]) for layer in self.settled] for i in range(self.count)]

    def forward(self, x: Tensor) -> Tensor:
        """[N, in] or [count, N, in] -> [count, N, out]."""
        hidden = self._stacked(x)
        if self.chain and self.has_slope and torch.is_grad_enabled() and not is_compiling():
            parameters = itertools.chain.from_iterable((layer.weight, layer.bias) for layer in self.chain)
            return _Chain.apply(hidden, self.activation, *parameters)  # type: ignore[no-any-return, no-untyped-call]
        for layer in self.chain:
            hidden = self.activation(layer(hidden))
        return hidden

    def _stacked(self, x: Tensor) -> Tensor:
        return x if x.dim() == 3 else x.expand(self.count, *x.shape)

    def trace(self, x: Tensor) -> list[Tensor]:
        """As `forward`, once settled and without autograd: the input of every layer, then what comes out."""
        return _trace(self.activation, self._stacked(x), ((layer.weight, layer.bias) for layer in self.settled))

    def pull_back(self, hidden: Sequence[Tensor], gradient: Tensor) -> None:
        """Overwrite the parameters' gradients by way of what `trace` returned, from that of its last [count, N, out].

        Only with an activation that `has_slope`.
        """
        of_outputs = _chain_rule(self.activation, hidden, [layer.weight for layer in self.settled], gradient)
        for layer, x, of_output in zip(reversed(self.settled), reversed(hidden[:-1]), of_outputs, strict=False):
            torch.bmm(x.transpose(1, 2), of_output, out=layer.weight_gradient)
            torch.sum(of_output, 1, keepdim=True, out=layer.bias_gradient)

    def single(self, index: int, x: Tensor) -> Tensor:
        """Only perceptron `index`: [N, in] -> [N, out]."""
        if self.singles and not torch.is_grad_enabled():
            activate = self.activation.in_place or self.activation.function
            for weight, bias in self.singles[index]:
                x = activate(torch.addmm(bias, x, weight))
            return x
        for layer in self.chain:
            x = self.activation(layer.single(index, x))
        return x
