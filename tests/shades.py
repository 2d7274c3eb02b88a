"""An environment whose picture is another one after each step."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Shades(gym.Env[np.ndarray, int]):
    """Ends after `length` steps; its picture, one colour, gets brighter by 10 with each. `returns`: another picture."""

    observation_space = spaces.Box(0.0, 1e6, (1,), np.float32)
    action_space = spaces.Discrete(2)
    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 50}

    def __init__(self, context: Any) -> None:
        self.render_mode, self.t = getattr(context, "render_mode", None), 0
        self.length, self.fails_at = context.get("length", 20), context.get("fails_at")
        self.returns = context.get("returns")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> Any:
        self.t += 1
        if self.t == self.fails_at:
            raise ZeroDivisionError("no ground")
        return np.full(1, self.t, np.float32), 2.0, self.t == self.length, False, {}

    def render(self) -> Any:
        assert self.render_mode == "rgb_array"
        return np.full((20, 30, 3), 10 * self.t % 256, np.uint8) if self.returns is None else self.returns
