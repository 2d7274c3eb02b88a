"""An environment whose episodes are short, and end in both ways."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np


class Short(gym.Env[np.ndarray, int]):
    """Episodes of 3 + column steps, every second one truncated; the observation is noise."""

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(3)

    def __init__(self, context: Any) -> None:
        self.length, self.episodes = 3 + context.vector_index, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps, self.episodes = 0, self.episodes + 1
        return self.observed(), {}

    def observed(self) -> np.ndarray:
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        over, cut = self.steps >= self.length, self.episodes % 2 == 0
        return self.observed(), float(self.np_random.normal()), over and not cut, over and cut, {}
