"""A perceptron's forward pass in NumPy, for the few observations that are acted on at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import Tensor

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
