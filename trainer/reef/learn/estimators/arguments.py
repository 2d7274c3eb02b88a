"""Makes the classes that settings name, with the arguments that settings give."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from reef.config.loading import load
from reef.errors import ConfigError, nearest

T = TypeVar("T")
# what every class gets from Reef itself
FROM_REEF = ("self", "observations", "actions", "gamma", "seed")


def named_class(kind: Any, key: str, known: Mapping[str, type[T]], base: type[T]) -> type[T]:
    """The class that `kind` is or names: by one of the `known` names, or as 'package.module:Name'.

    Raises:
        ConfigError: there is none, or it is not derived from `base`.
    """
    if isinstance(kind, str):
        own = known.get(kind)
        if ":" not in kind or kind.startswith("ray.rllib."):
            # also by its class, or the path that RLlib gives it
            own = own or {each.__name__: each for each in known.values()}.get(re.split("[.:]", kind)[-1])
        if own is None and ":" not in kind:
            raise ConfigError(
                f"{key}={kind!r}: expected one of {', '.join(known)}, or a path 'package.module:Name'."
                f"{nearest(kind, known)}"
            )
        kind = own or load(kind, key)
    if not (isinstance(kind, type) and issubclass(kind, base)):
        raise ConfigError(f"{key}={kind!r}: expected a class derived from {base.__module__}.{base.__qualname__}.")
    return kind


def check_arguments(kind: type, key: str, given: Mapping[str, Any]) -> None:
    """Raise ConfigError where the class does not take one of the arguments that are `given` by name."""
    known = [name for name in inspect.signature(kind.__init__).parameters if name not in FROM_REEF]  # type: ignore[misc]
    for name, value in given.items():
        if name not in known:
            raise ConfigError(
                f"{key}.{name}={value!r} is not an argument of {kind.__name__}, which takes: "
                f"{', '.join(known) or 'none'}.{nearest(name, known)}"
            )
