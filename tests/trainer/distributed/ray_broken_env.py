"""An environment that breaks: importable by name in actors."""

import sys
import time
from pathlib import Path

from gymnasium.envs.classic_control.cartpole import CartPoleEnv


class BrokenCartPole(CartPoleEnv):
    """Raises in its fifth step."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.steps = 0

    def step(self, action):
        self.steps += 1
        if self.steps == 5:
            raise RuntimeError("the pole is broken")
        return super().step(action)


class LeavingCartPole(BrokenCartPole):
    """Ends its process in its fifth step."""

    def step(self, action):
        if self.steps == 4:
            sys.exit(0)
        return super().step(action)


class HangingCartPole(CartPoleEnv):
    """Hangs in the 200th step of its process, once: not where the file `marker` is there."""

    all_steps = 0

    def __init__(self, settings):
        super().__init__()
        self.marker = Path(settings["marker"])

    def step(self, action):
        HangingCartPole.all_steps += 1
        if HangingCartPole.all_steps == 200 and not self.marker.exists():
            self.marker.touch()
            time.sleep(600)
        return super().step(action)
