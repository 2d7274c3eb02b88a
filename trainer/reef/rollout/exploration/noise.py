"""Exploration with noise on real-valued actions."""

from __future__ import annotations

import copy
from dataclasses import KW_ONLY, dataclass, field

import numpy as np
from gymnasium import spaces

from reef.nn.distributions import ActionDistribution
from reef.rollout.exploration.arguments import check
from reef.rollout.exploration.exploration import Exploration
from reef.rollout.exploration.levels import levels, ramp
from reef.schedules import Schedule
from reef.types import Array, State


@dataclass
class GaussianNoise(Exploration):
    """Deterministic actions plus Gaussian noise, clipped to the bounds, after uniformly random actions at the start.

    The noise has the standard deviation `stddev` times a scale that decreases from `initial_scale` to `final_scale`
    over `scale_timesteps`. With `per_worker` each worker has a constant scale, computed like epsilon in
    `EpsilonGreedy`.
    """

    _: KW_ONLY
    random_timesteps: int = 1000
    stddev: float = 0.1
    initial_scale: float = 1.0
    final_scale: float = 0.02
    scale_timesteps: int = 10_000
    per_worker: bool = False

    def __post_init__(self) -> None:
        self.actions.require(spaces.Box, self)
        for name in ("random_timesteps", "stddev", "initial_scale", "final_scale", "scale_timesteps"):
            check(name, getattr(self, name), 0)
        falling = ramp(self.initial_scale, self.final_scale, self.random_timesteps, self.scale_timesteps)
        self.scale, self.reported = levels(Schedule(falling), self.actions, self.per_worker)

    def explore(self, distribution: ActionDistribution, timestep: int, generator: np.random.Generator) -> Array:
        """Return noisy actions."""
        actions = distribution.deterministic()
        if timestep < self.random_timesteps:
            return self.actions.uniform(distribution, generator)
        noisy = actions + self.scale(timestep) * self.noise(actions, generator)
        return np.clip(noisy, self.actions.low, self.actions.high)

    def noise(self, actions: Array, generator: np.random.Generator) -> Array:
        """Return noise of the shape of `actions` [B, *action], before scaling."""
        return self.stddev * generator.standard_normal(actions.shape, np.float32)

    def deviation(self, timestep: int) -> float:
        """The present standard deviation of the noise, in units of the actions."""
        return self.stddev * self.scale(timestep)

    def info(self, timestep: int) -> dict[str, float]:
        """Return the current scale; for a local worker that does not sample, the mean over the sampling workers."""
        return {"cur_scale": self.reported(timestep)}


@dataclass
class OrnsteinUhlenbeckNoise(GaussianNoise):
    """Correlated noise: x += -theta x + sigma N(0, 1), one x per column (Lillicrap et al. 2016, section 7).

    It is 0 at the begin of an episode, as in algorithm 1 there, and changes with the column's own steps alone.
    """

    # no argument: `ou_sigma` and `ou_base_scale` are in its place
    stddev: float = field(default=0.0, init=False)
    _: KW_ONLY
    ou_theta: float = 0.15
    ou_sigma: float = 0.2
    ou_base_scale: float = 0.1
    walk: Array | None = field(default=None, init=False)  # [B, *action]
    acting: Array | None = field(default=None, init=False)  # [B] bool: the columns that take a step; None: all

    def __post_init__(self) -> None:
        super().__post_init__()
        check("ou_theta", self.ou_theta, 0, 1)
        for name in ("ou_sigma", "ou_base_scale"):
            check(name, getattr(self, name), 0)

    @property
    def is_episodic(self) -> bool:
        """Yes."""
        return True

    def begin(self, *, new_episodes: bool) -> None:
        """Let the process begin again where all columns have new episodes."""
        if new_episodes:
            self.walk = None

    def end_episodes(self, done: Array) -> None:
        """Let the process begin again in the columns where `done` [B] is True."""
        if self.walk is not None:
            self.walk[done] = 0.0

    def acts_in(self, columns: Array) -> None:
        """Let the process go on in these `columns` [B] bool alone."""
        self.acting = columns

    def apart(self) -> Exploration:
        """One whose process is at its begin."""
        one = copy.copy(self)
        one.walk = one.acting = None
        return one

    def noise(self, actions: Array, generator: np.random.Generator) -> Array:
        """Return the next state of the process, in units of half the action range."""
        if self.walk is None or self.walk.shape != actions.shape:
            self.walk = np.zeros_like(actions)
        step = self.ou_sigma * generator.standard_normal(actions.shape, np.float32)
        after = (1.0 - self.ou_theta) * self.walk + step
        if self.acting is not None:
            after[~self.acting] = self.walk[~self.acting]
        self.walk = after
        noise: Array = self.ou_base_scale * self.walk * (self.actions.high - self.actions.low)
        return noise

    def deviation(self, timestep: int) -> float:
        """The present standard deviation of the noise after many steps, in units of the actions."""
        of_process = self.ou_sigma / np.sqrt(max(1.0 - (1.0 - self.ou_theta) ** 2, 1e-6))
        span = float((self.actions.high - self.actions.low).mean())
        return float(self.ou_base_scale * span * of_process * self.scale(timestep))

    def state(self) -> State:
        """Return the state of the process."""
        return {} if self.walk is None else {"walk": self.walk.copy()}

    def set_state(self, state: State) -> None:
        """Restore what `state` returned."""
        self.walk = np.array(state["walk"]) if "walk" in state else None
