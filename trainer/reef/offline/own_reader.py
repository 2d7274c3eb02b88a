"""Readers of the user's own, by which `input_` may get recorded episodes from anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from reef.callbacks.hooks import guarded
from reef.config.groups.inputs import IOContext
from reef.errors import ConfigError
from reef.offline import rllib_files
from reef.offline.steps import Found, refuse

END = object()


def read_own(make: Callable[[IOContext], Any], context: IOContext) -> Iterator[Found]:
    """Yield for each episode where it is, and a function that returns its steps or raises what is wrong.

    `make` returns an iterable, or an object whose `next()` returns one after the other. Each item is an episode, a list
    of steps as in recorded files, or columns by RLlib's names, which may hold parts of several.

    Raises:
        CallbackError: the reader raised.
        ConfigError: it cannot be iterated.
    """
    name = f"input_={getattr(make, '__qualname__', make)}"
    for number, item in enumerate(_items(make, context, name), 1):
        place = f"{name}, item {number}"
        if not isinstance(item, Mapping):
            yield place, partial(_same, item)
            continue
        try:
            columns = {key: np.asarray(column).tolist() for key, column in item.items()}
            for steps in rllib_files.episodes_of({**columns, "type": rllib_files.KINDS[0]}):
                yield place, partial(_same, steps)
        except ValueError as error:
            yield place, partial(refuse, str(error))


def _items(make: Callable[[IOContext], Any], context: IOContext, name: str) -> Iterator[Any]:
    reader = guarded(name, make, context)
    if not isinstance(reader, Iterable):
        if not callable(getattr(reader, "next", None)):
            raise ConfigError(f"{name} returned {reader!r}: expected an iterable of episodes.")
        reader = iter(reader.next, None)
    items = guarded(name, iter, reader)
    while (item := guarded(name, next, items, END)) is not END:
        yield item


def _same(steps: Any) -> Any:
    return steps
