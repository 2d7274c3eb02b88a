"""An environment that prints in every way there is: importable by name in the processes of workers."""

import logging
import os
import sys

from gymnasium.envs.classic_control.cartpole import CartPoleEnv

log = logging.getLogger("printing_env")


class PrintingCartPole(CartPoleEnv):
    """Prints in its third step."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.steps = 0

    def step(self, action):
        self.steps += 1
        if self.steps == 3:
            print("to stdout of process", os.getpid())
            print("to stderr", file=sys.stderr)
            log.warning("through logging")
        return super().step(action)
