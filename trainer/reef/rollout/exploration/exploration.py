"""The base class of explorations, and the one that samples from the policy's distribution."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from reef.errors import ConfigError
from reef.nn.distributions import ActionDistribution
from reef.rollout.exploration.action_box import ActionBox
from reef.types import Array, State


@dataclass
class Exploration:
    """Turns distributions into actions; the timestep counts the steps of all environments together."""

    # Whether its randomness is only that of the policy's distribution, without additional noise.
    draws_from_policy: ClassVar[bool] = False
    actions: ActionBox

    def get_exploration_action(
        self,
        distribution: ActionDistribution,  # of B rows
        timestep: int,  # environment steps
        explore: bool,
        generator: np.random.Generator,
    ) -> Array:  # [B, *action]
        """Return explored actions, or the deterministic ones when `explore` is False."""
        return self.explore(distribution, timestep, generator) if explore else distribution.deterministic()

    def explore(self, distribution: ActionDistribution, timestep: int, generator: np.random.Generator) -> Array:
        """Return explored actions [B, *action]."""
        raise NotImplementedError

    def info(self, timestep: int) -> dict[str, float]:
        """Values to report in the results, such as the current epsilon."""
        return {}

    def state(self) -> State:
        """State for checkpoints besides the timestep."""
        return {}

    def set_state(self, state: State) -> None:
        """Restore what `state` returned."""


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


def check(name: str, value: Any, low: float, high: float = float("inf")) -> None:
    """Raise ConfigError unless an argument is a number from `low` to `high`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        limits = f"at least {low}" if high == float("inf") else f"from {low} to {high}"
        raise ConfigError(f"exploration_config.{name}={value!r} must be a number, {limits}.")
