"""Environments whose observations say which actions are allowed, and which raise for any other."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

ACTIONS = 4


class Allowed(gym.Env[dict[str, Any], Any]):
    """Two of four actions are allowed, others in each step; the largest allowed one is worth 1."""

    key = "action_mask"
    action_space: Any = spaces.Discrete(ACTIONS)

    def __init__(self, _: Any = None) -> None:
        hint = spaces.Box(-100.0, 100.0, (ACTIONS,))
        self.observation_space = spaces.Dict({self.key: spaces.MultiBinary(int(self.sizes.sum())), "hint": hint})

    @property
    def sizes(self) -> Any:
        """How many values each element of the action has."""
        return np.array([ACTIONS])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict[str, Any], Any]:
        super().reset(seed=seed)
        self.steps = 0
        return self.observe(), {}

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, Any]:
        self.steps += 1
        taken = np.atleast_1d(action)
        for value, allowed in zip(taken, self.allowed, strict=True):
            if not allowed[value]:
                raise ValueError(f"{action} is excluded by {self.allowed}")
        reward = float(taken[0] == np.flatnonzero(self.allowed[0])[-1])
        return self.observe(), reward, self.steps % 7 == 0, self.steps % 11 == 0, {}

    def observe(self) -> dict[str, Any]:
        self.allowed = [self.np_random.permutation(np.arange(size) < 2) for size in self.sizes]
        hint = self.allowed[0][:ACTIONS].astype(np.float32)
        return {self.key: np.concatenate(self.allowed).astype(np.int8), "hint": hint}


class AllowedOfSeveral(Allowed):
    """The same for an action of two elements."""

    action_space = spaces.MultiDiscrete([ACTIONS, 3])

    @property
    def sizes(self) -> Any:
        return np.array([ACTIONS, 3])


class OtherKey(Allowed):
    """The mask has another name."""

    key = "legal"


class Stuck(Allowed):
    """After the third step nothing is allowed."""

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, Any]:
        self.steps += 1
        return self.observe(), 0.0, False, False, {}

    def observe(self) -> dict[str, Any]:
        found = super().observe()
        return found | {self.key: found[self.key] * (self.steps < 3)}


class OverAtTheEnd(Allowed):
    """The last observation of an episode allows nothing, as in games that are over."""

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, Any]:
        obs, reward, terminated, truncated, info = super().step(action)
        return (obs | {self.key: 0 * obs[self.key]} if terminated else obs), reward, terminated, truncated, info
