"""Environments, a rollout and settings of a memory, for the tests of algorithms that learn from rollouts."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from reef.batch import Rollout

OBS, ACTIONS = spaces.Box(-1, 1, (2,)), spaces.Discrete(2)
LSTM = {"use_lstm": True, "lstm_cell_size": 8, "max_seq_len": 4}
NESTED = spaces.Dict({"a": spaces.Box(-1.0, 1.0, (2,)), "b": spaces.Tuple([spaces.Discrete(3), spaces.MultiBinary(2)])})


class CutOff(gym.Env[Any, Any]):
    """Reward 1 in each step; an episode is truncated after ten, where gamma .9 makes every state worth 10."""

    observation_space, action_space = spaces.Box(0.0, 1.0, (1,)), spaces.Discrete(2)

    def __init__(self, **_: Any) -> None:
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.steps = 0
        return np.ones(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return np.ones(1, np.float32), 1.0, False, self.steps == 10, {}


class Nested(gym.Env[Any, Any]):
    """Observes and takes Dict and Tuple values."""

    observation_space = NESTED
    action_space = spaces.Dict({"go": spaces.Discrete(3), "far": spaces.Tuple([spaces.Box(-1.0, 1.0, (2,))])})

    def __init__(self, **_: Any) -> None:
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.steps = 0
        return NESTED.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        self.steps += 1
        return NESTED.sample(), 1.0, self.steps == 5, False, {}


def learner(kind: Any, config: Any, **training: Any) -> Any:
    """A learner with a small network for what `rollout` holds."""
    return kind(config.training(**({"model": {"fcnet_hiddens": [4]}} | training)).debugging(seed=0), OBS, ACTIONS)


def rollout(steps: int = 6, columns: int = 3, seed: int = 0) -> Rollout:
    rng = np.random.default_rng(seed)
    obs = rng.standard_normal((steps + 1, columns, 2)).astype(np.float32)
    flags = np.zeros((steps, columns), np.bool_)
    logp = rng.uniform(-2.0, -0.2, (steps, columns)).astype(np.float32)
    return Rollout(
        obs=obs[:-1],
        actions=rng.integers(0, 2, (steps, columns)),
        rewards=rng.standard_normal((steps, columns)).astype(np.float32),
        next_obs=obs[1:],
        terminated=flags.copy(),
        truncated=flags.copy(),
        mask=~flags,
        extras={"action_logp": logp, "action_dist_inputs": rng.standard_normal((steps, columns, 2), np.float32)},
    )
