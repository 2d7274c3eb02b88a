"""Distributions over real numbers."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from reef.nn.distributions.distribution import LeafDistribution
from reef.types import Array

LOG_2PI = math.log(2 * math.pi)
LOG_STD_BOUNDS = (-20.0, 2.0)
# how near to its bounds an action's likelihood is still a number
NEAR_ONE = 1e-6


class DiagonalGaussian(LeafDistribution):
    """n independent normal distributions, from means and log standard deviations [N, 2 n]."""

    def __init__(self, inputs: Tensor) -> None:
        """`inputs`: the n means, then the n log standard deviations."""
        super().__init__(inputs)
        self.mean, self.log_std = inputs.chunk(2, dim=-1)

    @staticmethod
    def draw(inputs: Array, generator: np.random.Generator) -> Array:
        """[N, 2 n] -> [N, n]."""
        size = inputs.shape[-1] // 2
        noise = generator.standard_normal((len(inputs), size), np.float32)
        actions: Array = inputs[:, :size] + np.exp(inputs[:, size:]) * noise
        return actions

    @staticmethod
    def mode(inputs: Array) -> Array:
        """[N, 2 n] -> [N, n]."""
        return inputs[:, : inputs.shape[-1] // 2]

    def logp(self, actions: Tensor) -> Tensor:
        """[N]."""
        z = (actions.reshape(self.mean.shape) - self.mean) * torch.exp(-self.log_std)
        return -(0.5 * z * z + self.log_std + 0.5 * LOG_2PI).sum(-1)

    def entropy(self) -> Tensor:
        """[N]."""
        return (self.log_std + 0.5 * (LOG_2PI + 1)).sum(-1)

    def kl(self, other: DiagonalGaussian) -> Tensor:
        """[N]."""
        variance = torch.exp(2 * self.log_std)
        gap = (self.mean - other.mean) ** 2
        return (other.log_std - self.log_std + (variance + gap) / (2 * torch.exp(2 * other.log_std)) - 0.5).sum(-1)


class SquashedGaussian(LeafDistribution):
    """n independent normal distributions followed by tanh: actions in (-1, 1), from means and log deviations [N, 2 n].

    Haarnoja et al. 2018, appendix C. Its entropy and KL have no closed form.
    """

    def __init__(self, inputs: Tensor) -> None:
        """`inputs`: the n means, then the n log standard deviations, which are bounded."""
        super().__init__(inputs)
        self.mean, log_std = inputs.chunk(2, dim=-1)
        self.log_std = log_std.clamp(*LOG_STD_BOUNDS)

    @staticmethod
    def draw(inputs: Array, generator: np.random.Generator) -> Array:
        """[N, 2 n] -> [N, n]."""
        size = inputs.shape[-1] // 2
        noise = generator.standard_normal((len(inputs), size), np.float32)
        actions: Array = np.tanh(inputs[:, :size] + np.exp(inputs[:, size:].clip(*LOG_STD_BOUNDS)) * noise)
        return actions

    @staticmethod
    def mode(inputs: Array) -> Array:
        """[N, 2 n] -> [N, n], tanh of the mean."""
        return np.tanh(inputs[:, : inputs.shape[-1] // 2])

    def sample(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Actions [N, n] from standard normal `noise` [N, n] with gradients (reparametrised), and their logp [N]."""
        before = self.mean + torch.exp(self.log_std) * noise
        return torch.tanh(before), self._logp(before)

    def logp(self, actions: Tensor) -> Tensor:
        """[N]."""
        return self._logp(torch.atanh(actions.reshape(self.mean.shape).clamp(-1 + NEAR_ONE, 1 - NEAR_ONE)))

    def _logp(self, before: Tensor) -> Tensor:
        """Log-likelihood of the action tanh(before): log(1 - tanh(x)^2) = 2 (log 2 - x - softplus(-2 x))."""
        z = (before - self.mean) * torch.exp(-self.log_std)
        slope = 2 * (math.log(2) - before - F.softplus(-2 * before))
        return -(0.5 * z * z + self.log_std + 0.5 * LOG_2PI + slope).sum(-1)

    def entropy(self) -> Tensor:
        """Not available in closed form."""
        raise NotImplementedError("the entropy of a squashed Gaussian has no closed form: use the mean of -logp")

    def kl(self, other: SquashedGaussian) -> Tensor:
        """[N]; equal to the KL of the normal distributions, because both go through the same tanh."""
        return DiagonalGaussian.kl(self, other)  # type: ignore[arg-type]


class Squashed(LeafDistribution):
    """One action between -1 and 1, the tanh of what the network puts out [N, n]; it has no likelihood."""

    inputs_per_element: ClassVar[int] = 1

    @staticmethod
    def draw(inputs: Array, generator: np.random.Generator) -> Array:
        """[N, n], the one action: what explores adds noise to it."""
        return np.tanh(inputs)

    @staticmethod
    def mode(inputs: Array) -> Array:
        """[N, n]."""
        return np.tanh(inputs)

    def logp(self, actions: Tensor) -> Tensor:
        """It has none."""
        raise NotImplementedError("a deterministic action has no likelihood")

    def entropy(self) -> Tensor:
        """It has none."""
        raise NotImplementedError("a deterministic action has no entropy")

    def kl(self, other: Any) -> Tensor:
        """It has none."""
        raise NotImplementedError("a deterministic action has no KL divergence")
