"""Environments that `ray.tune.register_env` knows by a name, in the driver and in every process of Ray."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ray.tune.registry import ENV_CREATOR, _global_registry

from reef.config import AlgorithmConfig

C = TypeVar("C", bound=AlgorithmConfig)


class RegisteredEnv:
    """Makes environments of a registered name; with the settings it goes to other processes, as any function does."""

    def __init__(self, name: str, creator: Callable[[Any], Any]) -> None:
        self.__name__ = name
        self._creator = creator

    def __call__(self, context: Any) -> Any:
        """Make one, from an `EnvContext`."""
        return self._creator(context)

    def to_dict(self) -> str:
        """The name, which is what checkpoints and result files hold of it."""
        return self.__name__


def with_registered_envs(config: C) -> C:
    """The settings, with what makes the environment in place of its registered name; as they are without one."""
    changed: dict[str, Any] = {}
    if (env := _creator(config.env)) is not None:
        changed["env"] = env
    if (env := _creator(config.evaluation_config.get("env"))) is not None:
        changed["evaluation_config"] = {**config.evaluation_config, "env": env}
    return config.copy().assign(changed).freeze() if changed else config


def _creator(name: Any) -> RegisteredEnv | None:
    registry: Any = _global_registry
    if not (isinstance(name, str) and registry.contains(ENV_CREATOR, name)):
        return None
    return RegisteredEnv(name, registry.get(ENV_CREATOR, name))
