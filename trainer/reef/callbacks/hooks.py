"""Makes the objects of the setting `callbacks` and calls their hooks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from reef.callbacks.default import ALIASES, DefaultCallbacks, spellings
from reef.errors import CallbackError, own_frames, own_traceback

_worker: ContextVar[Any] = ContextVar("worker", default=None)  # the rollout worker, while a hook runs


class MultiCallbacks(list[type]):
    """Classes whose hooks are called in the order of the list; a plain list of classes means the same."""


def make_multi_callbacks(callback_class_list: Iterable[type]) -> MultiCallbacks:
    """Return classes as the setting `callbacks` takes them."""
    return MultiCallbacks(callback_class_list)


def get_global_worker() -> Any:
    """Return the rollout worker of this process inside a hook; RuntimeError elsewhere, and in learners."""
    if (worker := _worker.get()) is None:
        raise RuntimeError("get_global_worker(): there is a worker only inside hooks that run beside one.")
    return worker


def is_overridden(cls: type, hook: str) -> bool:
    """Whether a class has a hook of its own."""
    return getattr(cls, hook, None) not in (None, getattr(DefaultCallbacks, hook))


class Hooks:
    """Calls hooks of callback objects; `worker` is what `get_global_worker` returns in them."""

    def __init__(self, classes: Sequence[type], names: Iterable[str], worker: Any = None) -> None:
        """Make an object of each class that overrides one of the hooks `names`; CallbackError where it raises."""
        self.worker = worker
        self._calls: dict[str, list[Callable[[dict[str, Any]], None]]] = {}
        for cls in classes:
            own = [name for name in names if is_overridden(cls, name)]
            if own:
                made = guarded(f"callbacks {cls.__name__}.__init__", cls)
                for name in own:
                    self._calls.setdefault(name, []).append(_call_of(cls, name, getattr(made, name)))

    def __contains__(self, name: str) -> bool:
        return name in self._calls

    def call(self, name: str, **arguments: Any) -> None:
        """Call a hook of every object that has it; CallbackError where it raises."""
        if name not in self._calls:
            return
        token = _worker.set(self.worker)
        try:
            for call in self._calls[name]:
                call(arguments)
        finally:
            _worker.reset(token)


def _call_of(cls: type, name: str, hook: Callable[..., None]) -> Callable[[dict[str, Any]], None]:
    """Return a function that calls `hook` with those arguments that it takes."""
    parameters = inspect.signature(hook).parameters.values()
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    taken = spellings(name) if takes_all else spellings(name) & {parameter.name for parameter in parameters}
    where = f"callbacks {cls.__name__}.{name}"

    def call(arguments: dict[str, Any]) -> None:
        given = {}
        for key, value in arguments.items():
            for spelling in (key, ALIASES.get(key)):
                if spelling in taken:
                    given[spelling] = value
        guarded(where, hook, **given)

    return call


def guarded(what: str, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Call a person's function, which messages call `what`; CallbackError where it raises.

    What Reef raises inside, such as the end of a run, is raised as it is.
    """
    try:
        return function(*arguments, **named)
    except Exception as error:
        if type(error).__module__.startswith("reef."):
            raise
        frames = own_frames(error)
        place = f" ({frames.tb_frame.f_code.co_filename}, line {frames.tb_lineno})" if frames else ""
        text = f"{what} raised {type(error).__name__}: {error}{place}. Correct it."
        raise CallbackError(f"{text}{own_traceback(error)}") from error


def number_of(where: str, key: object, value: Any) -> float:
    """Return a number that a hook left under `key` as a plain one; CallbackError for another value."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    if not isinstance(value, int | float | np.integer | np.floating | np.bool_):
        raise CallbackError(f"callbacks: {where}[{key!r}]={value!r}: expected a number.")
    return float(value)
