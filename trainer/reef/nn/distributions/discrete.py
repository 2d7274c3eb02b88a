"""Distributions over indices and bits."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from reef.nn.distributions.distribution import LeafDistribution
from reef.types import Array

# keeps noise of 0 from the logarithm; the next above 0 is 3e-7
TINY = np.float32(1e-8)
# the logit of an action that is excluded; its probability is exactly 0
EXCLUDED = -1e30


class Categorical(LeafDistribution):
    """One of A actions, from logits [N, A]."""

    def __init__(self, inputs: Tensor) -> None:
        """`inputs`: logits, not necessarily normalised."""
        super().__init__(inputs)
        self._log_probs: Tensor | None = None
        self._probs: Tensor | None = None
        self._expected_log_prob: Tensor | None = None

    @property
    def log_probs(self) -> Tensor:
        """[N, A]; computed once. No `cached_property`: its lock cannot be traced by torch.compile."""
        if self._log_probs is None:
            self._log_probs = F.log_softmax(self.inputs, dim=-1)
        return self._log_probs

    @property
    def probs(self) -> Tensor:
        """[N, A]; computed once."""
        if self._probs is None:
            self._probs = self.log_probs.exp()
        return self._probs

    @property
    def expected_log_prob(self) -> Tensor:
        """[N], the negative entropy; computed once."""
        if self._expected_log_prob is None:
            self._expected_log_prob = (self.probs * self.log_probs).sum(-1)
        return self._expected_log_prob

    @staticmethod
    def draw(inputs: Array, generator: np.random.Generator, temperature: float = 1.0) -> Array:
        """[N, A] -> [N] samples of softmax(inputs / temperature), by the Gumbel-max trick.

        The negative logarithm of exponential noise has a Gumbel distribution.
        """
        noise = np.log(generator.standard_exponential(inputs.shape, np.float32) + TINY)
        return (temperature * noise - inputs).argmin(-1)  # type: ignore[no-any-return]

    @staticmethod
    def mode(inputs: Array) -> Array:
        """[N, A] -> [N]."""
        return inputs.argmax(-1)  # type: ignore[no-any-return]

    def logp(self, actions: Tensor) -> Tensor:
        """[N]."""
        return self.log_probs.gather(-1, actions.long().unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        """[N]."""
        return -self.expected_log_prob

    def kl(self, other: Categorical) -> Tensor:
        """[N]."""
        return (self.probs * (self.log_probs - other.log_probs)).sum(-1)


class Bernoulli(LeafDistribution):
    """n independent bits, from the logits of the value 1 [N, n]."""

    @staticmethod
    def draw(inputs: Array, generator: np.random.Generator) -> Array:
        """[N, n] -> [N, n] of 0 and 1: P(logistic noise < logit) is the probability of 1."""
        return (generator.logistic(size=inputs.shape) < inputs).astype(np.int8)

    @staticmethod
    def mode(inputs: Array) -> Array:
        """[N, n] -> [N, n]."""
        return (inputs > 0).astype(np.int8)

    def logp(self, actions: Tensor) -> Tensor:
        """[N]."""
        return -F.binary_cross_entropy_with_logits(self.inputs, actions.to(self.inputs.dtype), reduction="none").sum(-1)

    def entropy(self) -> Tensor:
        """[N]."""
        return F.binary_cross_entropy_with_logits(self.inputs, torch.sigmoid(self.inputs), reduction="none").sum(-1)

    def kl(self, other: Bernoulli) -> Tensor:
        """[N]."""
        p = torch.sigmoid(self.inputs)
        cross = F.binary_cross_entropy_with_logits(other.inputs, p, reduction="none").sum(-1)
        return cross - self.entropy()
