"""An environment that random actions do not solve."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

CELLS, STEPS = 20, 40


class Corridor(gym.Env[int, int]):
    """In each cell another one of three actions leads on, the others back; the only reward, 1, is in the last cell."""

    observation_space, action_space = gym.spaces.Discrete(CELLS), gym.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.cell = self.steps = 0
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        self.cell = max(self.cell + (1 if action == (self.cell * self.cell + 1) % 3 else -1), 0)
        there = self.cell == CELLS - 1
        return self.cell, float(there), there, self.steps == STEPS, {}
