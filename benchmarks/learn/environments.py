"""Environments of the lines that Gymnasium has no id for."""

from __future__ import annotations

from typing import Any

import gymnasium as gym


class SomeObservations(gym.ObservationWrapper[Any, Any, Any]):
    """Shows only some elements of a vector."""

    def __init__(self, env: gym.Env[Any, Any], kept: list[int]) -> None:
        super().__init__(env)
        whole = env.observation_space
        assert isinstance(whole, gym.spaces.Box)
        self.kept, self.observation_space = kept, gym.spaces.Box(whole.low[kept], whole.high[kept])

    def observation(self, observation: Any) -> Any:
        """The elements that are kept."""
        return observation[self.kept]


def cartpole_without_velocities(env_config: dict[str, Any]) -> gym.Env[Any, Any]:
    """CartPole-v1 with the position of the cart and the angle of the pole alone."""
    return SomeObservations(gym.make("CartPole-v1"), [0, 2])


def pendulum_without_velocity(env_config: dict[str, Any]) -> gym.Env[Any, Any]:
    """Pendulum-v1 with cosine and sine of its angle alone, and rewards times `reward_scale` (1)."""
    scale: float = env_config.get("reward_scale", 1.0)
    env = SomeObservations(gym.make("Pendulum-v1"), [0, 1])
    return gym.wrappers.TransformReward(env, lambda reward: float(reward) * scale)
