"""The method by which the settings of a group are set."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from reef.config.settings import Settings
from reef.errors import ConfigError

S = TypeVar("S", bound=Settings)


class GroupSetter:
    """The fluent setter of a group, which takes its name: `config.training(lr=1e-3)` sets and returns `config`."""

    def __init__(self, first: str = "") -> None:
        """`first`: the key of the setting that may be given without its key."""
        self._first, self._group = first, ""

    def __set_name__(self, owner: type[Settings], name: str) -> None:
        self._group = owner.group = name
        self.__doc__ = owner.__doc__

    def __get__(self, config: S | None, owner: type[S]) -> Callable[..., S]:
        return self._set if config is None else partial(self._set, config)

    def _set(self, config: S, *first: Any, **settings: Any) -> S:
        """Set settings of the group.

        Raises:
            ConfigError: a key is unknown or belongs to another group.
        """
        if len(first) > bool(self._first):
            raise TypeError(f"{self._group}() takes its settings by their keys: {self._group}(key=value)")
        by_key = {config.declared[name].key if name in config.declared else name: settings[name] for name in settings}
        if len(by_key) < len(settings):
            raise ConfigError(f"{self._group}({', '.join(settings)}): one setting by two names. Leave one out.")
        given = dict(**dict(zip([self._first], first, strict=False)), **by_key)
        wrong = [
            f"{key!r}: belongs to {config.groups[key]}. Write config.{config.groups[key]}({key}=...)."
            for key in given
            if config.groups.get(key, self._group) != self._group
        ]
        if wrong:
            raise ConfigError("\n".join(wrong))
        return config.assign(given)
