"""Recorded episodes for algorithms that learn from them, written as `reef evaluate --out` writes them."""

from __future__ import annotations

import atexit
import functools
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np


@functools.cache
def recorded(env: str | type[gymnasium.Env[Any, Any]], right: float = 0.0, episodes: int = 100) -> str:
    """The path of episodes of random actions, or with probability `right` of the environment's own `best`."""
    made: Any = gymnasium.make(env) if isinstance(env, str) else env()
    draw = np.random.default_rng(0)
    made.action_space.seed(0)
    path = folder_until_exit() / "episodes.json"
    with path.open("w") as out:
        for number in range(episodes):
            obs, _ = made.reset(seed=number)
            steps, over = [], False
            while not over:
                action = made.best if draw.random() < right else made.action_space.sample()
                next_obs, reward, terminated, truncated, _ = made.step(action)
                steps.append(
                    {
                        "obs": plain(obs),
                        "action": plain(action),
                        "next_obs": plain(next_obs),
                        "reward": float(reward),
                        "terminated": bool(terminated),
                        "truncated": bool(truncated),
                    }
                )
                obs, over = next_obs, terminated or truncated
            out.write(json.dumps({"number": number, "complete": True, "steps": steps}) + "\n")
    return str(path)


def folder_until_exit() -> Path:
    """A new folder for the tests of this process, which goes when it ends."""
    folder = Path(tempfile.mkdtemp(prefix="recorded-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def plain(value: Any) -> Any:
    """A value of a space as JSON has it; a tuple is a list of its parts."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    return [plain(part) for part in value] if isinstance(value, tuple) else np.asarray(value).tolist()
