"""Environments whose every number can be worked out by hand."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from reef.config import AlgorithmConfig


class Counter(gym.Env):
    """Observes (seed, steps); ends after `length` steps; raises where it is told to."""

    observation_space = spaces.Box(0.0, 2.0**32, (2,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, context):
        self.context = context
        self.length = context.get("length", 3)
        self.limit = context.get("limit")  # steps after which it truncates
        self.closed = False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seed, self.steps = seed, 0
        if self.context.get("fail_reset") == self.context.vector_index:
            raise RuntimeError("cannot reset")
        return self._obs(), {}

    def step(self, action):
        self.steps += 1
        if self.context.get("fail_at") == (self.context.vector_index, self.steps):
            raise RuntimeError("the simulator crashed")
        truncated = self.limit is not None and self.steps >= self.limit
        return self._obs(), float(action) + self.steps, self.steps >= self.length, truncated, {}

    def _obs(self):
        return np.array([self.seed, self.steps], np.float64)

    def close(self):
        self.closed = True


@pytest.fixture
def counter():
    return Counter


@pytest.fixture
def settings():
    """Build settings for an environment; any further key is one of AlgorithmConfig's."""

    def build(env, env_config=None, **keys):
        config = AlgorithmConfig().environment(env, env_config=env_config or {})
        config.seed = 7
        for key, value in keys.items():
            assert hasattr(config, key)
            setattr(config, key, value)
        return config

    return build
