"""Action distributions, made from a network's outputs [N, D]."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor

from reef.errors import ConfigError
from reef.spaces import Layout

LOG_2PI = math.log(2 * math.pi)


class Distribution(ABC):
    """A batch of N action distributions; actions are what the environment's action layout says, [N, *action]."""

    inputs: Tensor  # [N, D] what the network put out
    closed_form = False  # whether `gradient` is written out

    @abstractmethod
    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Draw one action per row."""

    @abstractmethod
    def deterministic(self) -> Tensor:
        """The mode of each row."""

    @abstractmethod
    def logp(self, actions: Tensor) -> Tensor:
        """[N] log-likelihood of the given actions."""

    @abstractmethod
    def entropy(self) -> Tensor:
        """[N] entropy in nats."""

    @abstractmethod
    def kl(self, other: Any) -> Tensor:
        """[N] KL(self || other), in nats."""

    def gradient(
        self,
        actions: Tensor,  # [N, *action]
        of_logp: Tensor,  # [N]
        of_entropy: Tensor,  # []
        of_kl: Tensor,  # []
        old: Any,  # the distribution in KL(old || self); None leaves that term out
    ) -> Tensor:
        """[N, D] derivative of sum(of_logp logp + of_entropy entropy + of_kl kl) with respect to `inputs`.

        Autograd finds the same; written out it costs a third. Raises NotImplementedError without a `closed_form`.
        """
        raise NotImplementedError


class Categorical(Distribution):
    """One of A actions, from logits [N, A]."""

    closed_form = True

    def __init__(self, inputs: Tensor) -> None:
        """`inputs`: logits, not necessarily normalised."""
        self.inputs = inputs
        self._log_probs: Tensor | None = None
        self._probs: Tensor | None = None
        self._expected_log_prob: Tensor | None = None

    @property
    def log_probs(self) -> Tensor:
        """[N, A]; computed once (`cached_property` has a lock, which torch.compile cannot trace)."""
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

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Draw by the Gumbel-max trick: one noise tensor and an argmax, cheaper than `torch.multinomial`."""
        noise = torch.empty_like(self.inputs).exponential_(generator=generator)
        return noise.log_().sub_(self.inputs).argmin(dim=-1)

    def deterministic(self) -> Tensor:
        """The likeliest action."""
        return self.inputs.argmax(dim=-1)

    def logp(self, actions: Tensor) -> Tensor:
        """[N]."""
        return self.log_probs.gather(-1, actions.long().unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        """[N]."""
        return -self.expected_log_prob

    def kl(self, other: Categorical) -> Tensor:
        """[N]."""
        return (self.probs * (self.log_probs - other.log_probs)).sum(-1)

    def gradient(
        self, actions: Tensor, of_logp: Tensor, of_entropy: Tensor, of_kl: Tensor, old: Categorical | None
    ) -> Tensor:
        """[N, A]."""
        weight = of_logp.unsqueeze(-1)
        surprise = self.expected_log_prob.unsqueeze(-1) - self.log_probs
        gradient = self.probs * (of_entropy * surprise - weight)
        if old is not None:
            gradient += of_kl * (self.probs - old.probs)
        return gradient.scatter_add_(-1, actions.long().unsqueeze(-1), weight)


class Bernoulli(Distribution):
    """n independent bits, from logits [N, n]."""

    def __init__(self, inputs: Tensor) -> None:
        """`inputs`: the logit of 1 for each bit."""
        self.inputs = inputs

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """[N, n] of 0 and 1."""
        uniform = torch.empty_like(self.inputs).uniform_(generator=generator)
        return (uniform < torch.sigmoid(self.inputs)).long()

    def deterministic(self) -> Tensor:
        """[N, n]."""
        return (self.inputs > 0).long()

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


class DiagonalGaussian(Distribution):
    """n independent normals, from means and log standard deviations [N, 2 n]."""

    closed_form = True

    def __init__(self, inputs: Tensor) -> None:
        """`inputs`: the n means, then the n log standard deviations."""
        self.inputs = inputs
        self.mean, self.log_std = inputs.chunk(2, dim=-1)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """[N, n]."""
        noise = torch.empty_like(self.mean).normal_(generator=generator)
        return self.mean + noise * self.log_std.exp()

    def deterministic(self) -> Tensor:
        """[N, n]."""
        return self.mean

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

    def gradient(
        self, actions: Tensor, of_logp: Tensor, of_entropy: Tensor, of_kl: Tensor, old: DiagonalGaussian | None
    ) -> Tensor:
        """[N, 2 n]."""
        precision = torch.exp(-2 * self.log_std)
        error, weight = actions.reshape(self.mean.shape) - self.mean, of_logp.unsqueeze(-1)
        of_mean = weight * error * precision
        of_log_std = weight * (error * error * precision - 1) + of_entropy
        if old is not None:
            drift = self.mean - old.mean
            of_mean += of_kl * drift * precision
            of_log_std += of_kl * (1 - (torch.exp(2 * old.log_std) + drift * drift) * precision)
        return torch.cat([of_mean, of_log_std], dim=-1)


class Reshaped(Distribution):
    """A distribution over vectors, for actions of another rank (a Box of rank 0 or 2 and more)."""

    def __init__(self, inner: Distribution, shape: tuple[int, ...]) -> None:
        """`shape`: of one action."""
        self.inner, self.shape, self.inputs = inner, shape, inner.inputs

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """[N, *shape]."""
        actions = self.inner.sample(generator)
        return actions.reshape(len(actions), *self.shape)

    def deterministic(self) -> Tensor:
        """[N, *shape]."""
        actions = self.inner.deterministic()
        return actions.reshape(len(actions), *self.shape)

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
    """Independent parts side by side: MultiDiscrete, and Tuple and Dict actions as one flat vector."""

    def __init__(self, inputs: Tensor, parts: Sequence[Part], dtype: torch.dtype) -> None:
        """`parts`: which inputs and which action entries belong to each part; `dtype`: of the joint action."""
        self.inputs, self.parts, self.dtype = inputs, parts, dtype
        self.members = [part.make(inputs[:, part.inputs]) for part in parts]

    def _split(self, actions: Tensor) -> list[Tensor]:
        return [actions[:, part.actions.start] if part.scalar else actions[:, part.actions] for part in self.parts]

    def _join(self, actions: list[Tensor]) -> Tensor:
        return torch.cat([a.reshape(len(a), -1).to(self.dtype) for a in actions], dim=-1)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """[N, sum of parts]."""
        return self._join([member.sample(generator) for member in self.members])

    def deterministic(self) -> Tensor:
        """[N, sum of parts]."""
        return self._join([member.deterministic() for member in self.members])

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
    """One leaf of a joint action: the distribution's class, its slice of the inputs and of the action vector."""

    def __init__(self, make: type[Any], inputs: slice, actions: slice, scalar: bool) -> None:
        """`scalar`: the leaf is one number (Discrete), handed to its distribution as [N]."""
        self.make, self.inputs, self.actions, self.scalar = make, inputs, actions, scalar


class DistributionMaker:
    """How an action space becomes a distribution: `num_inputs` says D, a call makes the distribution."""

    def __init__(self, layout: Layout) -> None:
        """Raises ConfigError for a space without a distribution."""
        self.shape = layout.shape
        self.parts: list[Part] = []
        self.num_inputs = 0
        self.joint = isinstance(layout.space, spaces.Tuple | spaces.Dict | spaces.MultiDiscrete)
        self.dtype = torch.int64 if isinstance(layout.space, spaces.MultiDiscrete) else torch.float32
        for leaf in layout.leaves:
            self._add(leaf.space, leaf.offset)
        self.gaussian = slice(*self._gaussian_inputs())
        self.reshaped = not self.joint and len(self.shape) != 1 and any(p.make is not Categorical for p in self.parts)
        self.closed_form = not self.joint and not self.reshaped and all(part.make.closed_form for part in self.parts)

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
            self._append(DiagonalGaussian, 2 * size, offset, size, scalar=False)
        else:
            raise ConfigError(
                f"action space {space} has no action distribution; use Discrete, MultiDiscrete, MultiBinary, Box, "
                "or a Tuple or Dict of them"
            )

    def _append(self, make: type[Any], width: int, offset: int, size: int, *, scalar: bool) -> None:
        inputs = slice(self.num_inputs, self.num_inputs + width)
        self.parts.append(Part(make, inputs, slice(offset, offset + size), scalar))
        self.num_inputs += width

    def _gaussian_inputs(self) -> tuple[int, int]:
        only = len(self.parts) == 1 and self.parts[0].make is DiagonalGaussian
        return (self.num_inputs // 2, self.num_inputs) if only else (0, 0)

    def __call__(self, inputs: Tensor) -> Distribution:
        """[N, num_inputs] -> a distribution over [N, *action]."""
        if self.joint:
            return Joint(inputs, self.parts, self.dtype)
        distribution: Distribution = self.parts[0].make(inputs)
        return Reshaped(distribution, self.shape) if self.reshaped else distribution
