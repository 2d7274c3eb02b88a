"""A game with the interface of ale-py's environments, whose frames can be worked out by hand."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

HEIGHT, WIDTH = 210, 160
MEANINGS = ["NOOP", "FIRE", "RIGHT", "LEFT"]
NOOP, FIRE, RIGHT, LEFT = range(4)


class Screen:
    """What ale-py calls `ale`: all pixels of a frame have its number, even and odd ones in halves of their own."""

    def __init__(self, game: Game) -> None:
        self._game = game

    def lives(self) -> int:
        return self._game.lives

    def getScreenGrayscale(self, out: np.ndarray) -> None:  # noqa: N802
        """The left half shows even frames and the right half odd ones, as games that flicker do."""
        out[:] = 0
        half = slice(0, WIDTH // 2) if self._game.frame % 2 == 0 else slice(WIDTH // 2, WIDTH)
        out[:, half] = self._game.frame

    def getScreenRGB(self, out: np.ndarray) -> None:  # noqa: N802
        gray = np.empty((HEIGHT, WIDTH), np.uint8)
        self.getScreenGrayscale(gray)
        out[:] = gray[..., None]


class Game(gym.Env[Any, Any]):
    """LEFT takes a life, RIGHT gives 2 points a frame; nothing counts before FIRE was pressed with this life."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(
        self,
        lives: int = 3,
        frameskip: int | tuple[int, int] = 4,
        obs_type: str = "rgb",
        has_fire: bool = True,
    ) -> None:
        self._frameskip = frameskip
        self.first_lives, self.lives = lives, lives
        self.meanings = MEANINGS if has_fire else ["NOOP", "UP", "RIGHT", "LEFT"]
        self.action_space = spaces.Discrete(4)
        shape = {"rgb": (HEIGHT, WIDTH, 3), "ram": (128,)}[obs_type]
        self.observation_space = spaces.Box(0, 255, shape, np.uint8)
        self.ale = Screen(self)
        self.actions: list[int] = []  # one for each frame since the last reset
        self.fired = False

    def get_action_meanings(self) -> list[str]:
        return self.meanings

    @property
    def frame(self) -> int:
        return len(self.actions)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.lives, self.actions, self.fired = self.first_lives, [], "FIRE" not in self.meanings
        return self._look(), {"lives": self.lives}

    def step(self, action: int) -> Any:
        low, high = (self._frameskip, self._frameskip + 1) if isinstance(self._frameskip, int) else self._frameskip
        reward = 0.0
        for _ in range(int(self.np_random.integers(low, high))):
            self.actions.append(int(action))
            self.fired |= action == FIRE
            if self.fired and action == RIGHT:
                reward += 2.0
            if self.fired and action == LEFT:
                self.lives -= 1
                self.fired = "FIRE" not in self.meanings
        return self._look(), reward, self.lives <= 0, False, {"lives": self.lives}

    def _look(self) -> np.ndarray:
        if self.observation_space.shape == (128,):
            return np.zeros(128, np.uint8)
        frame = np.empty((HEIGHT, WIDTH, 3), np.uint8)
        self.ale.getScreenRGB(frame)
        return frame
