"""An environment with any spaces, whose observations are drawn from theirs."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium import spaces

from reef.config.spaces import space_from_dict, space_to_dict


class AnySpaces(gym.Env[Any, Any]):
    """`env_config`: `observation` and `action`, plain forms of spaces; a reward for each step, ten steps long."""

    def __init__(self, env_config: Any) -> None:
        self.observation_space = space_from_dict(env_config["observation"])
        self.action_space = space_from_dict(env_config["action"])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(0)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        self.steps += 1
        return self.observation_space.sample(), 1.0, self.steps == 10, False, {}


def with_spaces(observation: spaces.Space[Any], action: spaces.Space[Any]) -> dict[str, Any]:
    """Settings of an algorithm for these spaces."""
    return {
        "env": AnySpaces,
        "env_config": {"observation": space_to_dict(observation), "action": space_to_dict(action)},
    }
