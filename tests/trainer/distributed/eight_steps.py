"""Environments whose episodes have eight steps; importable by name in the processes of workers."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np


class EightSteps(gym.Env[Any, Any]):
    """Noise to observe, and a reward of 1 for each step; with `real` an action is a number and not an index."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,))

    def __init__(self, env_config: Any) -> None:
        self.action_space = gym.spaces.Box(-1.0, 1.0, (1,)) if env_config.get("real") else gym.spaces.Discrete(2)
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self.np_random.random(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self.np_random.random(2, np.float32), 1.0, self.steps == 8, False, {}


class Slow(EightSteps):
    """Takes `step_s` seconds for a step, and touches `mark` with the first."""

    def __init__(self, env_config: Any) -> None:
        super().__init__(env_config)
        self.step_s, self.mark = env_config["step_s"], env_config.get("mark")

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.mark:
            Path(self.mark).touch()
        time.sleep(self.step_s)
        return super().step(action)


class DyingInWorker2(EightSteps):
    """Has the process of worker 2 killed in its sixth fragment, in the middle of a call, unless it was recreated."""

    def __init__(self, env_config: Any) -> None:
        super().__init__(env_config)
        self.left = 55 if env_config.worker_index == 2 and not env_config.recreated_worker else 10**9

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)
