"""An environment whose processes begin together."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import gymnasium as gym


class Meeting(gym.Wrapper[Any, Any, Any, Any]):
    """A CartPole whose first step waits, for a minute at most, until as many processes have come as `count` says.

    The process that made the settings, `driver`, does not count.
    """

    def __init__(self, context: dict[str, Any]) -> None:
        super().__init__(gym.make("CartPole-v1", max_episode_steps=context.get("max_episode_steps")))
        self.folder, self.count = Path(context["folder"]), context["count"]
        self.has_met = os.getpid() == context["driver"]

    def step(self, action: Any) -> Any:
        if not self.has_met:
            (self.folder / str(os.getpid())).touch()
            deadline = time.monotonic() + 60
            while len([*self.folder.iterdir()]) < self.count:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"after a minute fewer than {self.count} processes have come")
                time.sleep(0.01)
            self.has_met = True
        return self.env.step(action)
