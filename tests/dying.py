"""An environment that has its process killed, once."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import gymnasium as gym


class Dying(gym.Wrapper[Any, Any, Any, Any]):
    """A CartPole in whose step `at` the process is killed, unless the file `marker` says that one was."""

    def __init__(self, context: dict[str, Any]) -> None:
        super().__init__(gym.make("CartPole-v1"))
        self.marker, self.left = Path(context["marker"]), context["at"]

    def step(self, action: Any) -> Any:
        self.left -= 1
        if not self.left and not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.env.step(action)
