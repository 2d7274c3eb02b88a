"""Environments of the old Gym API: `reset() -> obs`, `step() -> obs, reward, done, info`, spaces of the package gym."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import gymnasium as gym
from gymnasium import spaces

STEPS_TO_NEW_API = (
    "Change reset(self, *, seed=None, options=None) to return (obs, info), and step(self, action) to return (obs, "
    "reward, terminated, truncated, info), with spaces from gymnasium; or set auto_wrap_old_gym_envs=True."
)


class OldApiEnv(gym.Env[Any, Any]):
    """Speaks the new API for an environment of the old one; its other attributes stay reachable."""

    def __init__(self, env: Any) -> None:
        self._env = env
        self.observation_space = gymnasium_space(getattr(env, "observation_space", None))
        self.action_space = gymnasium_space(getattr(env, "action_space", None))
        self.metadata = getattr(env, "metadata", {})
        self.render_mode = getattr(env, "render_mode", None)
        self._seedable = reset_takes_seed(env)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Seed the environment in whichever way it knows, then reset it."""
        if self._seedable:
            result = self._env.reset(seed=seed)
        else:
            if seed is not None and callable(getattr(self._env, "seed", None)):
                self._env.seed(seed)
            result = self._env.reset()
        return result if _is_new_reset(result) else (result, {})

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Split `done`: a time limit says so in the info's "TimeLimit.truncated"."""
        result = self._env.step(action)
        if len(result) != 4:
            return result  # type: ignore[no-any-return]
        obs, reward, done, info = result
        truncated = bool(done and info.get("TimeLimit.truncated", False))
        return obs, reward, bool(done) and not truncated, truncated, info

    def render(self) -> Any:
        """What the environment draws."""
        return self._env.render()

    def close(self) -> None:
        """Close the environment, if it can be closed."""
        if hasattr(self._env, "close"):
            self._env.close()

    def __getattr__(self, name: str) -> Any:
        if name == "_env":  # not set yet: __init__ failed, or a copy is being made
            raise AttributeError(name)
        return getattr(self._env, name)


def gymnasium_space(space: Any) -> Any:
    """The Gymnasium space that another package's `space` looks like; `space` itself where it is one, or like none."""
    if isinstance(space, spaces.Space):
        return space
    if hasattr(space, "low") and hasattr(space, "high"):
        return spaces.Box(space.low, space.high, space.shape, space.dtype)
    if hasattr(space, "nvec"):
        return spaces.MultiDiscrete(space.nvec)
    if hasattr(space, "n"):  # only a MultiBinary has axes
        return spaces.MultiBinary(space.n) if space.shape else _discrete(space)
    if isinstance(parts := getattr(space, "spaces", None), Mapping):
        return spaces.Dict({key: gymnasium_space(part) for key, part in parts.items()})
    if isinstance(parts, tuple | list):
        return spaces.Tuple([gymnasium_space(part) for part in parts])
    return space


def _discrete(space: Any) -> spaces.Discrete:
    return spaces.Discrete(int(space.n), start=int(getattr(space, "start", 0)))


def reset_takes_seed(env: Any) -> bool:
    """Whether `reset` can be called with the keyword `seed`."""
    try:
        parameters = inspect.signature(env.reset).parameters.values()
    except (TypeError, ValueError):  # a compiled method without a signature
        return True
    return any(p.name == "seed" or p.kind is p.VAR_KEYWORD for p in parameters)


def speaks_old_api(env: Any, *, try_out: bool) -> bool:
    """Whether an environment is of the old API; `try_out` resets and steps it where its signature does not show it."""
    given = [getattr(env, kind, None) for kind in ("observation_space", "action_space")]
    if not reset_takes_seed(env) or any(gymnasium_space(space) is not space for space in given):
        return True
    if try_out:
        with suppress(Exception):  # the check that follows says what is wrong
            return not _is_new_reset(env.reset(seed=0)) or len(env.step(env.action_space.sample())) == 4
    return False


def _is_new_reset(result: Any) -> bool:
    return isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)
