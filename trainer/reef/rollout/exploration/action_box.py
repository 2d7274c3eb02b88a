"""The bounds of a policy's actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from reef.errors import ConfigError
from reef.nn.distributions import ActionDistribution
from reef.nn.distributions.discrete import EXCLUDED
from reef.spaces import Layout
from reef.types import Array


@dataclass(frozen=True, slots=True)
class ActionBox:
    """The bounds of a policy's actions, element by element, and which worker explores."""

    layout: Layout
    low: Array  # [*action] float32
    high: Array  # [*action] float32, exclusive for whole elements
    whole: Array  # [*action] bool: an index instead of a real number
    worker_index: int = 0
    num_workers: int = 0

    @classmethod
    def of(cls, layout: Layout, *, normalized: bool, worker_index: int = 0, num_workers: int = 0) -> ActionBox:
        """Make the bounds of `layout`; `normalized` and unbounded Box elements range from -1 to 1."""
        low, high = np.empty((2, layout.size), np.float32)
        whole = np.empty(layout.size, np.bool_)
        for leaf in layout.leaves:
            part = slice(leaf.offset, leaf.offset + leaf.size)
            low[part], high[part], whole[part] = _bounds(leaf.space, normalized)
        shape = layout.shape
        return cls(layout, low.reshape(shape), high.reshape(shape), whole.reshape(shape), worker_index, num_workers)

    def uniform(self, distribution: ActionDistribution, generator: np.random.Generator) -> Array:
        """[B, *action] uniformly random actions, for B distributions: of indices those that no mask excludes."""
        if distribution.maker.is_of_indices:
            return distribution.maker.actions(distribution.inputs, lambda _, logits: uniform_valid(logits, generator))
        values = (
            generator.random((len(distribution), *self.layout.shape), np.float32) * (self.high - self.low) + self.low
        )
        return np.where(self.whole, np.floor(values), values).astype(self.layout.action_dtype)  # type: ignore[no-any-return]

    def uniform_logp(self, distribution: ActionDistribution) -> Array:
        """[B] log-likelihood of each action that `uniform` may return."""
        logp = np.zeros(len(distribution))
        if distribution.maker.is_of_indices:
            valid = distribution.inputs > EXCLUDED
            for part in distribution.maker.parts:
                logp -= np.log(valid[:, part.inputs].sum(-1))
            return logp
        spans = self.high - self.low  # of whole elements: how many values there are
        return logp - np.log(spans[spans > 0]).sum()  # type: ignore[no-any-return]

    def require(self, kind: type[spaces.Space[Any]], who: object) -> None:
        """Raise ConfigError unless the action space is of `kind`."""
        if not isinstance(self.layout.space, kind):
            raise ConfigError(
                f"exploration_config.type {type(who).__name__!r} needs a {kind.__name__} action space, but the "
                f"environment's is {self.layout.space}. Use 'StochasticSampling' or 'Random'."
            )


def uniform_valid(logits: Array, generator: np.random.Generator) -> Array:
    """[B] random indices of the entries of `logits` [B, n], except those that an action mask excludes."""
    scores = generator.random(logits.shape)
    return np.where(logits <= EXCLUDED, -1.0, scores).argmax(-1)  # type: ignore[no-any-return]


def _bounds(space: spaces.Space[Any], normalized: bool) -> tuple[Any, Any, bool]:
    """Low and high of the flat elements, and whether they are indices."""
    if isinstance(space, spaces.Box):
        bounded = (not normalized) & np.isfinite(space.low) & np.isfinite(space.high)
        low, high = np.where(bounded, space.low, -1.0), np.where(bounded, space.high, 1.0)
        return low.ravel(), high.ravel(), False
    if isinstance(space, spaces.MultiDiscrete):
        return 0, space.nvec.ravel(), True
    return 0, int(space.n) if isinstance(space, spaces.Discrete) else 2, True
