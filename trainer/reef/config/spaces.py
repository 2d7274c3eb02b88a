"""Gymnasium spaces as plain data, so that a space given in a configuration survives a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from reef.errors import ConfigError, nearest

if TYPE_CHECKING:
    from reef.config.algorithm_config import AlgorithmConfig

KINDS = ("Box", "Discrete", "MultiDiscrete", "MultiBinary", "Dict", "Tuple")


def is_space(value: Any) -> bool:
    """Whether `value` is a Gymnasium space; known by its class, so that nothing has to be imported."""
    return any(kind.__module__ == "gymnasium.spaces.space" for kind in type(value).__mro__)


def as_space(key: str) -> Callable[[Any], Any]:
    """What makes the value of the setting `key`: a space of its plain form; everything else comes back as it is."""

    def convert(value: Any) -> Any:
        if not isinstance(value, Mapping) or is_space(value):  # a space of Gymnasium may be a mapping itself
            return value
        try:
            return space_from_dict(value)
        except ConfigError as error:
            raise ConfigError(f"{key}: {error}") from error

    return convert


def space_problems(key: str, value: Any) -> Iterator[str]:
    """What is wrong with a setting that holds a space or null."""
    if value is not None and not is_space(value):
        expected = f"a space of Gymnasium, or a mapping with its 'type', one of {', '.join(KINDS)}"
        yield f"{key}={value!r}: expected {expected}."


def space_to_dict(space: Any) -> dict[str, Any]:
    """Describe a space as JSON data; infinite bounds become the text "inf" and "-inf"."""
    kind = type(space).__name__
    if kind == "Box":
        bounds = {"low": _bounds(space.low), "high": _bounds(space.high)}
        return {"type": kind, **bounds, "shape": list(space.shape), "dtype": str(space.dtype)}
    if kind == "Discrete":
        return {"type": kind, "n": int(space.n), "start": int(space.start)}
    if kind == "MultiDiscrete":
        start = {"start": space.start.tolist()} if space.start.any() else {}
        return {"type": kind, "nvec": space.nvec.tolist(), **start}
    if kind == "MultiBinary":
        return {"type": kind, "n": list(space.n) if isinstance(space.n, tuple) else int(space.n)}
    if kind == "Dict":
        return {"type": kind, "spaces": {key: space_to_dict(item) for key, item in space.spaces.items()}}
    if kind == "Tuple":
        return {"type": kind, "spaces": [space_to_dict(item) for item in space.spaces]}
    raise ConfigError(f"space {space!r}: {kind} has no plain form. Use one of {', '.join(KINDS)}.")


def space_from_dict(data: Any) -> Any:
    """Build the space that `space_to_dict` described.

    Raises:
        ConfigError: the type is unknown or its arguments are wrong.
    """
    from gymnasium import spaces

    if not isinstance(data, Mapping):
        raise ConfigError(f"space {data!r}: expected a mapping with the 'type', one of {', '.join(KINDS)}.")
    arguments = {key: value for key, value in data.items() if key != "type"}
    kind = data.get("type")
    if kind not in KINDS:
        raise ConfigError(f"space type {kind!r}: expected one of {', '.join(KINDS)}.{nearest(str(kind), KINDS)}")
    if "false" in arguments:
        raise ConfigError(f"space {dict(data)!r}: kubectl reads the key n as false. Write it in quotes: '\"n\": 2'.")
    inner = arguments.get("spaces")
    if kind == "Dict" and isinstance(inner, Mapping):
        arguments["spaces"] = {key: space_from_dict(item) for key, item in inner.items()}
    elif kind == "Tuple" and isinstance(inner, list | tuple):
        arguments["spaces"] = [space_from_dict(item) for item in inner]
    elif kind in ("Dict", "Tuple"):
        expected = "a mapping of names to spaces" if kind == "Dict" else "a list of spaces"
        raise ConfigError(f"space {dict(data)!r}: give 'spaces', {expected}.")
    if kind == "Box" and (missing := [name for name in ("low", "high") if name not in arguments]):
        raise ConfigError(f"space {dict(data)!r}: {' and '.join(missing)} is missing. Give its bounds.")
    try:
        return _box(**arguments) if kind == "Box" else getattr(spaces, kind)(**arguments)
    except Exception as error:  # Gymnasium asserts, and NumPy has several of its own
        raise ConfigError(f"space {dict(data)!r}: {error}") from error


def _bounds(bounds: Any) -> Any:
    """One value where all are equal, else nested lists."""
    import numpy as np

    if not np.isfinite(bounds).all():
        bounds = bounds.astype(str)
    return bounds.flat[0].item() if bounds.size and (bounds == bounds.flat[0]).all() else bounds.tolist()


def _box(low: Any, high: Any, shape: Any = None, dtype: str = "float32") -> Any:
    import numpy as np
    from gymnasium import spaces

    shape = tuple(shape) if shape is not None else np.shape(low)
    least, most = (np.broadcast_to(np.asarray(bound).astype(dtype), shape) for bound in (low, high))
    return spaces.Box(least, most, dtype=np.dtype(dtype).type)


def require_mask(config: AlgorithmConfig, space: Any) -> None:
    """Raise ConfigError unless observations of this space have the `action_mask_key`, if it is not the default."""
    key = config.action_mask_key
    if key in (None, config.declared["action_mask_key"].fresh()):
        return
    keys = list(space.spaces) if type(space).__name__ == "Dict" else []
    if key not in keys:
        raise ConfigError(
            f"action_mask_key={key!r}: the observation space {space} has no such key: it must be a Dict with it."
            f"{nearest(str(key), keys)}{' A policy without one has null in its config.' * (len(config.policies) > 1)}"
        )
