"""Action distributions, parametrised by a network's outputs [N, D].

Everything that a loss needs is torch. Actions are sampled in NumPy, because for small batches torch calls are slower.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor

from reef.errors import ConfigError
from reef.spaces import Layout
from reef.types import Array

LOG_2PI = math.log(2 * math.pi)
LOG_STD_BOUNDS = (-20.0, 2.0)
# Margin to the bounds of actions, inside of which the log-likelihood stays finite.
NEAR_ONE = 1e-6
# Avoids log(0) for noise of 0; the smallest noise above 0 is 3e-7.
TINY = np.float32(1e-8)


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


class Reshaped(Distribution):
    """A distribution over vectors for actions of another rank (a Box of rank 0, 2 or more)."""

    def __init__(self, inner: Distribution) -> None:
        """`inner`: the distribution over flattened actions."""
        self.inner, self.inputs = inner, inner.inputs

    def logp(self, actions: Tensor) -> Tensor:
        """[N]."""
        return self.inner.logp(actions.reshape(len(actions), -1))

    def entropy(self) -> Tensor:
        """[N]."""
        return self.inner.entropy()

    def kl(self, other: Reshaped) -> Tensor:
        """[N]."""
        return self.inner.kl(other.inner)


class Joint(Distribution):
    """Independent parts: MultiDiscrete, and Tuple and Dict actions as one flat vector."""

    def __init__(self, inputs: Tensor, parts: Sequence[Part]) -> None:
        """`parts`: which inputs and which action elements belong to each part."""
        self.inputs, self.parts = inputs, parts
        self.members = [part.make(inputs[:, part.inputs]) for part in parts]

    def _split(self, actions: Tensor) -> list[Tensor]:
        flat = actions.reshape(len(actions), -1)
        return [flat[:, part.actions.start] if part.scalar else flat[:, part.actions] for part in self.parts]

    def logp(self, actions: Tensor) -> Tensor:
        """[N]."""
        pairs = zip(self.members, self._split(actions), strict=True)
        return torch.stack([member.logp(part) for member, part in pairs]).sum(0)

    def entropy(self) -> Tensor:
        """[N]."""
        return torch.stack([member.entropy() for member in self.members]).sum(0)

    def kl(self, other: Joint) -> Tensor:
        """[N]."""
        pairs = zip(self.members, other.members, strict=True)
        return torch.stack([mine.kl(theirs) for mine, theirs in pairs]).sum(0)


class Part:
    """One leaf of a joint action: the class of its distribution, its slice of the inputs and of the action vector."""

    def __init__(self, make: type[LeafDistribution], inputs: slice, actions: slice, scalar: bool) -> None:
        """`scalar`: the leaf is one number (Discrete), passed to its distribution as [N]."""
        self.make, self.inputs, self.actions, self.scalar = make, inputs, actions, scalar


class DistributionMaker:
    """Makes distributions for an action space: `num_inputs` is D; calling it makes one for training."""

    def __init__(self, layout: Layout, box: type[LeafDistribution] = DiagonalGaussian) -> None:
        """`box`: the distribution of real numbers. Raises ConfigError for a space without a distribution."""
        self.shape, self.box = layout.shape, box
        self.parts: list[Part] = []
        self.num_inputs = 0
        self.joint = isinstance(layout.space, spaces.Tuple | spaces.Dict | spaces.MultiDiscrete)
        self.dtype = layout.action_dtype
        for leaf in layout.leaves:
            self._add(leaf.space, leaf.offset)
        self.gaussian = slice(*self._gaussian_inputs())
        self.reshaped = not self.joint and len(self.shape) != 1 and any(p.make is not Categorical for p in self.parts)

    def _add(self, space: spaces.Space[Any], offset: int) -> None:
        if isinstance(space, spaces.MultiDiscrete):
            for number in space.nvec.reshape(-1):
                self._append(Categorical, int(number), offset, 1, scalar=True)
                offset += 1
        elif isinstance(space, spaces.Discrete):
            self._append(Categorical, int(space.n), offset, 1, scalar=True)
        elif isinstance(space, spaces.MultiBinary):
            size = math.prod(space.shape)
            self._append(Bernoulli, size, offset, size, scalar=False)
        elif isinstance(space, spaces.Box):
            size = math.prod(space.shape)
            self._append(self.box, 2 * size, offset, size, scalar=False)
        else:
            raise ConfigError(
                f"action space {space} has no action distribution; use Discrete, MultiDiscrete, MultiBinary, Box, "
                "or a Tuple or Dict of them"
            )

    def _append(self, make: type[LeafDistribution], width: int, offset: int, size: int, *, scalar: bool) -> None:
        inputs = slice(self.num_inputs, self.num_inputs + width)
        self.parts.append(Part(make, inputs, slice(offset, offset + size), scalar))
        self.num_inputs += width

    def _gaussian_inputs(self) -> tuple[int, int]:
        only = len(self.parts) == 1 and self.parts[0].make is DiagonalGaussian
        return (self.num_inputs // 2, self.num_inputs) if only else (0, 0)

    def __call__(self, inputs: Tensor) -> Distribution:
        """[N, num_inputs] -> a distribution over [N, *action]."""
        if self.joint:
            return Joint(inputs, self.parts)
        distribution = self.parts[0].make(inputs)
        return Reshaped(distribution) if self.reshaped else distribution

    def actions(
        self,
        inputs: Array,  # [N, num_inputs]
        choose: Callable[[type[LeafDistribution], Array], Array],  # (distribution, [N, D]) -> one action per row
    ) -> Array:  # [N, *action]
        """Actions chosen by `choose` for each leaf."""
        if self.joint:
            chosen = [choose(part.make, inputs[:, part.inputs]).reshape(len(inputs), -1) for part in self.parts]
            return np.concatenate(chosen, axis=-1).astype(self.dtype).reshape(len(inputs), *self.shape)
        actions = choose(self.parts[0].make, inputs)
        return actions.reshape(len(actions), *self.shape) if self.reshaped else actions


class ActionDistribution:
    """A batch of N action distributions for acting, in NumPy."""

    def __init__(self, maker: DistributionMaker, inputs: Array) -> None:
        """`inputs`: the network's outputs [N, D]."""
        self.maker, self.inputs = maker, inputs

    def __len__(self) -> int:
        """N."""
        return len(self.inputs)

    def sample(self, generator: np.random.Generator) -> Array:
        """[N, *action], sampled."""
        return self.maker.actions(self.inputs, lambda leaf, inputs: leaf.draw(inputs, generator))

    def deterministic(self) -> Array:
        """[N, *action], the most likely."""
        return self.maker.actions(self.inputs, lambda leaf, inputs: leaf.mode(inputs))
