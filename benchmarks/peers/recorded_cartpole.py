"""Episodes of CartPole-v1 that a simple controller played, from which all peers of offline learning learn."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

EPISODES = 50
DRAWN = 20  # batches that a learner takes in turns


def episodes(seed: int) -> list[list[dict[str, Any]]]:
    """Return episodes as lists of steps; the pole is pushed to where it falls, and now and then anywhere."""
    env, draws = gymnasium.make("CartPole-v1"), np.random.default_rng(seed)
    return [_episode(env, seed * EPISODES + index, draws) for index in range(EPISODES)]


def drawn(seed: int, size: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return batches of observations [N, 4] and actions [N], drawn from the steps of `episodes`."""
    steps = [step for episode in episodes(seed) for step in episode]
    obs = np.array([step["obs"] for step in steps], np.float32)
    actions = np.array([step["action"] for step in steps])
    rows = [np.random.default_rng(seed + index).integers(len(steps), size=size) for index in range(DRAWN)]
    return [(obs[chosen], actions[chosen]) for chosen in rows]


def _episode(env: Any, seed: int, draws: np.random.Generator) -> list[dict[str, Any]]:
    obs, _ = env.reset(seed=seed)
    steps, ended = [], False
    while not ended:
        falls_right = obs[2] + obs[3] > 0
        action = int(falls_right if draws.random() > 0.1 else draws.integers(2))
        after, reward, terminated, truncated, _ = env.step(action)
        steps.append(
            {
                "obs": obs.tolist(),
                "action": action,
                "reward": float(reward),
                "next_obs": after.tolist(),
                "terminated": bool(terminated),
                "truncated": bool(truncated),
            }
        )
        obs, ended = after, terminated or truncated
    return steps
