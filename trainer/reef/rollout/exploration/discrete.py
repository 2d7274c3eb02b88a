"""Exploration for discrete actions."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from reef.errors import ConfigError
from reef.nn.distributions import ActionDistribution, Categorical
from reef.nn.distributions.discrete import EXCLUDED
from reef.rollout.exploration.action_box import uniform_valid
from reef.rollout.exploration.arguments import check
from reef.rollout.exploration.exploration import Exploration
from reef.rollout.exploration.levels import levels, ramp
from reef.schedules import Schedule, Scheduled
from reef.types import Array


@dataclass
class Random(Exploration):
    """Uniformly random actions."""

    @property
    def has_logp(self) -> bool:
        """Yes."""
        return True

    def explore(self, distribution: ActionDistribution, timestep: int, generator: np.random.Generator) -> Array:
        """Return uniformly random actions; with an action mask, uniform over the valid ones."""
        return self.actions.uniform(distribution, generator)

    def logp(self, distribution: ActionDistribution, actions: Array, timestep: int) -> Array:
        """[B], the same for all valid actions."""
        return self.actions.uniform_logp(distribution)


@dataclass
class EpsilonGreedy(Exploration):
    """With probability epsilon a uniformly random valid action, else the best one.

    Epsilon stays at `initial_epsilon` for `warmup_timesteps`, then falls linearly over `epsilon_timesteps`; an
    `epsilon_schedule`, a number or [[timestep, value], ...], replaces these four arguments. With `per_worker`, worker i
    of N has the constant epsilon 0.4 ** (1 + 7 (i - 1) / (N - 1)) (Horgan et al. 2018, section 4.1); the local worker
    is greedy, but follows the schedule if there are no other workers.
    """

    _: KW_ONLY
    initial_epsilon: float = 1.0
    final_epsilon: float = 0.05
    warmup_timesteps: int = 0
    epsilon_timesteps: int = 100_000
    epsilon_schedule: Scheduled | None = None
    per_worker: bool = False

    @property
    def has_logp(self) -> bool:
        """Yes."""
        return True

    def __post_init__(self) -> None:
        self.actions.require(spaces.Discrete, self)
        for name in ("initial_epsilon", "final_epsilon"):
            check(name, getattr(self, name), 0.0, 1.0)
        for name in ("warmup_timesteps", "epsilon_timesteps"):
            check(name, getattr(self, name), 0)
        falling = ramp(self.initial_epsilon, self.final_epsilon, self.warmup_timesteps, self.epsilon_timesteps)
        schedule = Schedule(falling) if self.epsilon_schedule is None else self._given_schedule(self.epsilon_schedule)
        self.epsilon, self.reported = levels(schedule, self.actions, self.per_worker)

    @staticmethod
    def _given_schedule(points: Any) -> Schedule:
        try:
            schedule = Schedule(points)
        except (ConfigError, TypeError, ValueError) as error:
            wanted = "expected a number, or points [[0, epsilon], [timestep, epsilon], ...]"
            reason = f" ({error})" if isinstance(error, ConfigError) else ""
            raise ConfigError(f"exploration_config.epsilon_schedule={points!r}: {wanted}{reason}.") from error
        for _, epsilon in [[0, points]] if isinstance(points, int | float) else points:
            check("epsilon_schedule", epsilon, 0.0, 1.0)
        return schedule

    def explore(self, distribution: ActionDistribution, timestep: int, generator: np.random.Generator) -> Array:
        """Return the best actions, some of them replaced by random ones."""
        best = distribution.deterministic()
        chosen = generator.random(len(best)) < self.epsilon(timestep)
        if not chosen.any():  # almost always, once epsilon is small
            return best
        return np.where(chosen, uniform_valid(distribution.inputs, generator), best)

    def logp(self, distribution: ActionDistribution, actions: Array, timestep: int) -> Array:
        """[B], of the best action and of the others that no mask excludes."""
        epsilon, valid = self.epsilon(timestep), (distribution.inputs > EXCLUDED).sum(-1)
        chances = epsilon / valid + (1.0 - epsilon) * (actions == distribution.deterministic())
        logp: Array = np.log(chances)
        return logp

    def info(self, timestep: int) -> dict[str, float]:
        """Return the current epsilon; for a local worker that does not sample, the mean over the sampling workers."""
        return {"cur_epsilon": self.reported(timestep)}


@dataclass
class SoftQ(Exploration):
    """Sample actions with probability proportional to exp(Q / temperature)."""

    _: KW_ONLY
    temperature: float = 1.0

    @property
    def has_logp(self) -> bool:
        """Yes."""
        return True

    def follows_policy(self, timestep: int) -> bool:
        """With a temperature of 1."""
        return self.temperature == 1.0

    def __post_init__(self) -> None:
        self.actions.require(spaces.Discrete, self)
        check("temperature", self.temperature, 0.0)
        if self.temperature == 0.0:
            raise ConfigError("exploration_config.temperature is 0; it must be above 0. Near 0 means greedy.")

    def explore(self, distribution: ActionDistribution, timestep: int, generator: np.random.Generator) -> Array:
        """Return samples of the distribution with this temperature."""
        return Categorical.draw(distribution.inputs, generator, self.temperature)

    def logp(self, distribution: ActionDistribution, actions: Array, timestep: int) -> Array:
        """[B] by the distribution with this temperature."""
        # in float64 and below 0, whatever the temperature
        logits = distribution.inputs.astype(np.float64)
        logits = (logits - logits.max(-1, keepdims=True)) / self.temperature
        return ActionDistribution(distribution.maker, logits).logp(actions)
