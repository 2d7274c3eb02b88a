"""Environments that run in processes of their own: importable there."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from reef.envs.multi_agent import MultiAgentEnv


class Walk(gym.Env):
    """Observes random numbers that depend on seed and actions, and its steps; ends after 3 to 6 of them."""

    observation_space: Any = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space: Any = spaces.Box(-2.0, 2.0, (2,), np.float32)

    def __init__(self, context: Any) -> None:
        self.context, self.index, self.speed = context, context.vector_index, 1.0
        self.made_remotely, self.recreated = context.remote, context.recreated_worker
        if context.get("env", 0) == self.index:
            time.sleep(context.get("make_s", 0.0))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps, self.end = 0, int(self.np_random.integers(3, 7))
        return self.look(0.0), {"reset": True}

    def look(self, action: float) -> Any:
        return np.array([self.np_random.normal(), action, self.steps], np.float32)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        mine = self.context.get("env", 0) == self.index
        if mine and self.steps == self.context.get("raise_at"):
            raise (FileNotFoundError if self.context.get("of_files") else ValueError)("the motor is hot")
        if mine and self.steps == self.context.get("die_at") and first_time(self.context["marks"]):
            os.kill(os.getpid(), signal.SIGKILL)
        if mine and self.steps == self.context.get("hang_at"):
            time.sleep(1000.0)
        if mine:
            time.sleep(self.context.get("slow_s", 0.0))
        return self.look(float(action[0])), float(action.sum()), self.steps >= self.end, False, {"pid": os.getpid()}

    def pid(self, twice: bool = False) -> int:
        return os.getpid() * (1 + twice)


def first_time(folder: str) -> bool:
    """Whether this was not asked before, by any process."""
    try:
        Path(folder, "died").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


class HangingClose(Walk):
    """Does not close."""

    def close(self) -> None:
        time.sleep(1000.0)


class Parts(Walk):
    """Its spaces have parts."""

    observation_space = spaces.Dict({"a": spaces.Discrete(4), "b": spaces.Box(-np.inf, np.inf, (2,), np.float32)})
    action_space = spaces.Tuple((spaces.Discrete(3), spaces.Box(-1.0, 1.0, (1,), np.float32)))

    def look(self, action: float) -> Any:
        return {"a": self.steps % 4, "b": self.np_random.normal(size=2).astype(np.float32) + action}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return super().step(np.array([action[0], action[1][0]]))


class Large(Walk):
    """Observations of some megabytes."""

    observation_space = spaces.Box(-np.inf, np.inf, (1000, 1000), np.float32)

    def look(self, action: float) -> Any:
        return np.full((1000, 1000), action + self.steps, np.float32)


class Old:
    """An environment of the old API."""

    observation_space, action_space = spaces.Box(-1e9, 1e9, (1,), np.float32), spaces.Discrete(2)

    def __init__(self, context: Any) -> None:
        self.steps = 0

    def seed(self, seed: int) -> None:
        self.first = seed % 1000

    def reset(self) -> Any:
        self.steps = 0
        return np.array([self.first], np.float32)

    def step(self, action: int) -> Any:
        self.steps += 1
        return np.array([self.first + self.steps + action], np.float32), 1.0, self.steps == 3, {}


class Task(Walk):
    """Has a task."""

    task = 0

    def get_task(self) -> int:
        return self.task

    def set_task(self, task: int) -> None:
        self.task = task


class NoSpace(Walk):
    """Cannot be made for one index."""

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        if context.vector_index == context.get("broken", 0):
            raise OSError("no licence is free")


class Pair(MultiAgentEnv):
    """Two agents."""

    possible_agents = ("a", "b")
    observation_spaces = action_spaces = {"a": spaces.Discrete(2), "b": spaces.Discrete(2)}  # noqa: RUF012

    def __init__(self, context: Any) -> None:
        pass

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return {"a": 0, "b": 1}, {}

    def step(self, actions: Any) -> Any:
        return {}, {}, {"__all__": True}, {}, {}


class HangingPair(Pair):
    """Does not close."""

    def close(self) -> None:
        time.sleep(1000.0)
