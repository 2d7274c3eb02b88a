"""Exploration by sampling from the policy's distribution."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np

from reef.nn.distributions import ActionDistribution
from reef.rollout.exploration.exploration import Exploration, check
from reef.types import Array


@dataclass
class StochasticSampling(Exploration):
    """Sample from the distribution, after `random_timesteps` of uniformly random actions."""

    draws_from_policy: ClassVar[bool] = True
    _: KW_ONLY
    random_timesteps: int = 0

    def __post_init__(self) -> None:
        check("random_timesteps", self.random_timesteps, 0)

    def explore(self, distribution: ActionDistribution, timestep: int, generator: np.random.Generator) -> Array:
        """Return samples; uniformly random actions at the start."""
        if timestep < self.random_timesteps:
            return self.actions.uniform(len(distribution), generator)
        return distribution.sample(generator)
