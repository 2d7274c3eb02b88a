"""A network's parameters as one vector: clipping, Adam, all-reduce and publishing are one operation each."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn


class FlatParameters:
    """Makes parameters (and their gradients) views of one contiguous vector each.

    The parameters stay ordinary `nn.Parameter`s: autograd accumulates into `gradient`, and changes of `vector` change
    the network. Do not call `module.to(...)` afterwards: it would break the views.
    """

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        """Take over parameters, which must be float32 and on one device."""
        self.parameters = list(parameters)
        with torch.no_grad():
            parts = [p.detach().reshape(-1) for p in self.parameters]
            self.vector = torch.cat(parts) if parts else torch.zeros(0)
        self.bind()

    def bind(self) -> None:
        """Make the parameters views of the vector, with new gradients."""
        self.gradient = torch.zeros_like(self.vector)
        start = 0
        for parameter in self.parameters:
            span = slice(start, start + parameter.numel())
            parameter.data = self.vector[span].view(parameter.shape)
            parameter.grad = self.gradient[span].view(parameter.shape)
            start = span.stop

    def part(self, parameters: Iterable[nn.Parameter]) -> FlatParameters:
        """Return adjacent parameters as views of the same vectors."""
        mine = list(parameters)
        start = next(i for i, parameter in enumerate(self.parameters) if parameter is mine[0])
        assert all(a is b for a, b in zip(mine, self.parameters[start:], strict=False)), "a part is in one piece"
        first = sum(parameter.numel() for parameter in self.parameters[:start])
        span = slice(first, first + sum(parameter.numel() for parameter in mine))
        part = object.__new__(FlatParameters)
        part.parameters, part.vector, part.gradient = mine, self.vector[span], self.gradient[span]
        return part

    @property
    def is_frozen(self) -> bool:
        """Whether a parameter is excluded from training; this can change at any time."""
        return not all(parameter.requires_grad for parameter in self.parameters)

    def frozen(self) -> list[tuple[nn.Parameter, Tensor]]:
        """The parameters that are excluded from training, each with a copy."""
        kept = [parameter for parameter in self.parameters if not parameter.requires_grad]
        return [(parameter, parameter.detach().clone()) for parameter in kept]

    def numpy(self) -> NDArray[np.float32]:
        """A copy of the vector, on the CPU."""
        return np.array(self.vector.detach().cpu().numpy(), dtype=np.float32)

    def load(self, values: NDArray[np.float32]) -> None:
        """Overwrite the vector; raises ValueError if the length differs."""
        if values.shape != tuple(self.vector.shape):
            raise ValueError(f"weights hold {values.shape[0]} numbers, this network has {self.vector.shape[0]}")
        # Copied first: arrays from Ray's object store are read-only, which torch does not support.
        self.vector.copy_(torch.from_numpy(values if values.flags.writeable else values.copy()))
