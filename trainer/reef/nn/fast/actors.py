"""Policies in NumPy, for the few observations that are acted on at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from reef.nn.fast.activations import FAST_ACTIVATIONS
from reef.nn.layers.encoders import Encoder
from reef.nn.policies import ActorCritic
from reef.types import Array

ONE_THREAD = 2**18  # products up to which OpenBLAS takes no second thread, which would be in the way of torch's
MOST_BLOCKS = 8  # of rows with so many products each; beyond, torch catches up

Layer = tuple[Tensor, Tensor]  # weight [in, out] and bias [out]


class ArrayMLP:
    """[N, in] -> [N, out] by parameters on the CPU that stay where they are in memory.

    For a few rows a call of torch costs more than its arithmetic, and pushes the environments' code out of the caches.
    """

    def __init__(self, hidden: Sequence[Layer], last: Layer, activate: Callable[[Array], Array]) -> None:
        """`hidden` layers with the activation, which overwrites its argument, and a `last` one without."""
        self._given = hidden, last, activate
        self.layers = [(weight.numpy(), bias.numpy()) for weight, bias in (*hidden, last)]
        self.activate = activate
        self.block = ONE_THREAD // max(weight.size for weight, _ in self.layers)  # rows
        self.most_rows = MOST_BLOCKS * self.block

    def __getstate__(self) -> tuple[Any, ...]:
        """A copy's arrays must be views of the copied parameters."""
        return self._given

    def __setstate__(self, given: tuple[Any, ...]) -> None:
        """The reverse."""
        ArrayMLP.__init__(self, *given)

    def __call__(self, x: Array) -> Array:
        """[N, in] -> [N, out]; `x` has no more than `most_rows`."""
        if len(x) <= self.block:
            return self._forward(x)
        return np.concatenate([self._forward(x[start : start + self.block]) for start in range(0, len(x), self.block)])

    @np.errstate(invalid="ignore", over="ignore")  # as torch, which is silent: whoever checks names where it came from
    def _forward(self, x: Array) -> Array:
        *hidden, (last, shift) = self.layers
        for weight, bias in hidden:
            x = x @ weight
            x += bias
            x = self.activate(x)
        x = x @ last
        x += shift
        return x


class ArrayActorCritic:
    """The actor of an `ActorCritic`: observations [N, *obs] -> distribution inputs [N, D]."""

    def __init__(self, policy: ActorCritic) -> None:
        """Look up the parameters, which `FlatParameters` keeps where they are in memory."""
        stack, pi = policy.encoder.mlp, policy.pi
        hidden = [(layer.weight.detach()[0], layer.bias.detach()[0, 0]) for layer in stack.layers]
        last = pi.weight.detach().t(), pi.bias.detach()
        self.mlp = ArrayMLP(hidden, last, FAST_ACTIVATIONS[stack.activation].of_array)
        self.log_std = policy.log_std
        self.most_rows = self.mlp.most_rows

    @staticmethod
    def covers(policy: ActorCritic) -> bool:
        """Whether it is a perceptron of a vector of numbers, on the CPU."""
        encoder = policy.encoder
        known = encoder.mlp.activation in FAST_ACTIVATIONS
        return type(encoder) is Encoder and encoder.plain and known and policy.device.type == "cpu"

    def __call__(self, obs: Array) -> Array:
        """`obs` has no more than `most_rows`."""
        inputs = self.mlp(obs)
        if self.log_std is not None:
            means, inputs = inputs, np.empty((len(obs), 2 * inputs.shape[-1]), np.float32)
            inputs[:, : means.shape[-1]] = means
            inputs[:, means.shape[-1] :] = self.log_std.detach().numpy()
        return inputs


ACTORS: dict[type, Any] = {ActorCritic: ArrayActorCritic}
