"""What every action distribution offers to a loss, and what each kind adds for acting."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from reef.types import Array


class Distribution(ABC):
    """A batch of N action distributions for training; actions are laid out as in the environment, [N, *action].

    `ActionDistribution` samples actions.
    """

    inputs: Tensor  # [N, D] the network's outputs

    @abstractmethod
    def logp(self, actions: Tensor) -> Tensor:
        """[N] log-likelihood of the given actions."""

    @abstractmethod
    def entropy(self) -> Tensor:
        """[N] entropy in nats."""

    @abstractmethod
    def kl(self, other: Any) -> Tensor:
        """[N] KL(self || other), in nats."""


class LeafDistribution(Distribution):
    """The distribution for a space that is not composite."""

    # of real numbers: what the network puts out for each element of the action
    inputs_per_element: ClassVar[int] = 2

    def __init__(self, inputs: Tensor) -> None:
        """`inputs`: the network's outputs [N, D]."""
        self.inputs = inputs

    @staticmethod
    @abstractmethod
    def draw(inputs: Array, generator: np.random.Generator) -> Array:
        """[N, D] -> one sampled action per row."""

    @staticmethod
    @abstractmethod
    def mode(inputs: Array) -> Array:
        """[N, D] -> the most likely action of each row."""
