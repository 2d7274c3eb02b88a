"""A perceptron's forward pass in NumPy, for the few observations that are acted on at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from reef.types import Array

ONE_THREAD = 2**18  # products of a layer up to which OpenBLAS needs no second thread, which would wait beside torch's

Layer = tuple[Tensor, Tensor]  # weight [in, out] and bias [out]


class ArrayMLP:
    """[N, in] -> [N, out] by parameters on the CPU that stay where they are in memory.

    For a few rows a call of torch costs more than its arithmetic, and pushes the environments' code out of the caches.
    """

    def __init__(self, hidden: Sequence[Layer], last: Layer, activate: Callable[[Array], Array]) -> None:
        """`hidden` layers with the activation, which overwrites its argument, and a `last` one without."""
        self.hidden = [(weight.numpy(), bias.numpy()) for weight, bias in hidden]
        self.last = last[0].numpy(), last[1].numpy()
        self.activate = activate
        self.most_rows = ONE_THREAD // max(weight.size for weight, _ in [*self.hidden, self.last])

    def __call__(self, x: Array) -> Array:
        """[N, in] -> [N, out]; for more than `most_rows` torch is the better way."""
        for weight, bias in self.hidden:
            x = x @ weight
            x += bias
            x = self.activate(x)
        weight, bias = self.last
        x = x @ weight
        x += bias
        return x
