"""From an action space, of one part or several, to its distribution."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from reef.config import ModelConfig
from reef.errors import ConfigError
from reef.nn.distributions.continuous import DiagonalGaussian, Squashed
from reef.nn.distributions.discrete import Bernoulli, Categorical
from reef.nn.distributions.distribution import Distribution, LeafDistribution
from reef.spaces import Layout
from reef.types import Array


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
        self.space, self.shape, self.box = layout.space, layout.shape, box
        self.parts: list[Part] = []
        self.num_inputs = 0
        self.joint = isinstance(layout.space, spaces.Tuple | spaces.Dict | spaces.MultiDiscrete)
        self.dtype = layout.action_dtype
        for leaf in layout.leaves:
            self._add(leaf.space, leaf.offset)
        self.gaussian = slice(*self._gaussian_inputs())
        self.reshaped = not self.joint and len(self.shape) != 1 and any(p.make is not Categorical for p in self.parts)

    @property
    def is_of_indices(self) -> bool:
        """Whether actions are indices alone: Discrete, MultiDiscrete, or several of them."""
        return all(part.make is Categorical for part in self.parts)

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
            self._append(self.box, self.box.inputs_per_element * size, offset, size, scalar=False)
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

    def __call__(self, inputs: Tensor, model: object = None) -> Distribution:
        """[N, num_inputs] -> a distribution over [N, *action]; with `policy.model`, one for a person."""
        if model is not None:
            from reef.nn.distributions.queried import QueriedDistribution  # which is made of this

            return QueriedDistribution(self, inputs, model)
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


def distribution_maker(model: ModelConfig, layout: Layout) -> DistributionMaker:
    """Make the distributions of actions of this layout: by `model.custom_action_dist`, or by the parts of the space."""
    if model.custom_action_dist is None:
        return DistributionMaker(layout)
    from reef.nn.distributions.custom import custom_maker  # which is made of this

    return custom_maker(model, layout)


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

    def logp(
        self,
        actions: Array,  # [N, *action]
    ) -> Array:  # [N]
        """The log-likelihood of actions; 0 where the distribution is a single action, which has none."""
        if any(part.make is Squashed for part in self.maker.parts):
            return np.zeros(len(self.inputs), np.float32)
        found: Array = self.maker(torch.from_numpy(self.inputs)).logp(torch.from_numpy(actions)).numpy()
        return found
