"""From the setting `callbacks` to classes, with what is wrong with them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from reef.callbacks.default import ARGUMENTS, DefaultCallbacks, spellings
from reef.callbacks.hooks import is_overridden
from reef.config.loading import load, load_function
from reef.errors import ConfigError, nearest

# Events of the dict of functions that older code gives, with their hooks.
EVENTS = {
    "on_episode_start": "on_episode_start",
    "on_episode_step": "on_episode_step",
    "on_episode_end": "on_episode_end",
    "on_sample_end": "on_sample_end",
    "on_train_result": "on_train_result",
    "on_postprocess_traj": "on_postprocess_trajectory",
}
# What tells functions whose call runs none of their lines.
LAZY = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)


def callback_classes(given: Any) -> list[type]:
    """Return the classes of a value of the setting; ConfigError where one cannot be loaded or is none."""
    if given is None or given in ([], {}):
        return []
    if isinstance(given, Mapping):
        return [_class_of_functions(given)]
    classes = []
    for each in given if isinstance(given, list) else [given]:
        found = load(each, "callbacks") if isinstance(each, str) else each
        if not isinstance(found, type):
            raise ConfigError(f"callbacks={each!r} is {found!r}: expected a class. Derive it from DefaultCallbacks.")
        classes.append(found)
    return classes


def problems_of(given: Any) -> Iterator[str]:
    """Say what is wrong with a value of the setting that has its type."""
    try:
        classes = callback_classes(given)
    except ConfigError as error:
        yield str(error)
        return
    for cls in classes:
        if cls is not DefaultCallbacks:
            yield from _problems_of_class(cls)


def _problems_of_class(cls: type) -> Iterator[str]:
    wrong = [name for name in dir(cls) if name.startswith("on_") and name not in ARGUMENTS]
    for name in wrong:
        if callable(getattr(cls, name)):
            yield (
                f"callbacks: {cls.__name__}.{name} is no hook and would never be called.{nearest(name, ARGUMENTS)} "
                f"Hooks are {', '.join(ARGUMENTS)}."
            )
    own = [name for name in ARGUMENTS if is_overridden(cls, name)]
    if not own and not wrong:
        yield f"callbacks: {cls.__name__} has no hook. Override at least one of {', '.join(ARGUMENTS)}."
    for name in own:
        if not callable(getattr(cls, name)):
            yield f"callbacks: {cls.__name__}.{name} is {getattr(cls, name)!r}: expected a method."
        else:
            yield from _problems_of_hook(cls, name)


def _problems_of_hook(cls: type, name: str) -> Iterator[str]:
    passed, where = sorted(spellings(name)), f"callbacks: {cls.__name__}.{name}"
    hook, function = inspect.getattr_static(cls, name), getattr(cls, name)
    if any(is_lazy(function) for is_lazy in LAZY):
        yield f"{where} is a coroutine or a generator, whose lines would not run when it is called. Use def, no yield."
    parameters = list(inspect.signature(function).parameters.values())
    is_bound = hasattr(type(hook), "__get__")  # unlike a functools.partial or an object with __call__
    if is_bound and not isinstance(hook, staticmethod | classmethod):
        first = parameters.pop(0) if parameters else None
        if first is None or first.kind in (first.KEYWORD_ONLY, first.VAR_KEYWORD) or first.name in passed:
            yield f"{where} has no place for the object that it belongs to. Take self first."
    for parameter in parameters:
        is_optional = parameter.default is not parameter.empty
        if is_optional or parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        if parameter.name not in passed or parameter.kind is parameter.POSITIONAL_ONLY:
            yield (
                f"{where} asks for {parameter.name!r}, which is not passed as a keyword."
                f"{nearest(parameter.name, passed)} {name} gets {', '.join(passed)}."
            )


def _class_of_functions(functions: Mapping[str, Any]) -> type:
    hooks = {}
    for event, given in functions.items():
        if event not in EVENTS:
            raise ConfigError(
                f"callbacks: {event!r} is no event.{nearest(event, EVENTS)} Events are {', '.join(EVENTS)}."
            )
        hooks[EVENTS[event]] = _hook_of(load_function(given, f"callbacks[{event!r}]", "info"))
    return type("FunctionsOfDict", (DefaultCallbacks,), hooks)


def _hook_of(function: Callable[[dict[str, Any]], None]) -> Callable[..., None]:
    def hook(self: object, **arguments: Any) -> None:
        info = dict(arguments)
        if "base_env" in info:
            info |= {"env": info["base_env"], "policy": info["policies"]}
        if "postprocessed_batch" in info:
            original = info["original_batches"][info["agent_id"]][-1]
            info["pre_batch"] = info["policies"][info["policy_id"]], original
            info["post_batch"] = info["postprocessed_batch"]
        function(info)

    return hook
