"""Fitting values to the declared types, and turning them into plain JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from reef.config.spaces import is_space, space_to_dict


class MisfitError(TypeError):
    """A value does not fit its declared type."""


def fit(value: Any, hint: Any) -> Any:
    """Return `value` in the form that `hint` asks for; only conversions that lose nothing are made.

    Raises:
        MisfitError: there is no such form.
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin in (Union, UnionType):
        return _fit_union(value, arguments)
    if origin is Literal:
        return _require(value in arguments, value)
    if origin is list or hint is list:
        _require(isinstance(value, Sequence | set | frozenset) and not isinstance(value, str), value)
        items = sorted(value) if isinstance(value, set | frozenset) else value
        return [fit(item, arguments[0] if arguments else Any) for item in items]
    if origin is tuple:
        _require(isinstance(value, Sequence) and len(value) == len(arguments) and not isinstance(value, str), value)
        return [fit(item, kind) for item, kind in zip(value, arguments, strict=True)]
    if origin is dict or hint is dict:
        _require(isinstance(value, Mapping), value)
        key_hint, item_hint = arguments or (Any, Any)
        keys = [_fit_part(key, key_hint, f"{type_text(key_hint)} in place of the key {key!r}") for key in value]
        items = [_fit_part(item, item_hint, f"for {key!r} {type_text(item_hint)}") for key, item in value.items()]
        return dict(zip(keys, items, strict=True))
    if origin is not None or hint is Callable:
        return _require(callable(value), value)
    return _fit_plain(value, hint)


def _fit_part(value: Any, hint: Any, text: str) -> Any:
    try:
        return fit(value, hint)
    except MisfitError as error:
        raise MisfitError(text) from error


def _fit_union(value: Any, hints: Sequence[Any]) -> Any:
    """Prefer the alternative that takes the value as it is, so that "auto" stays text and 1 stays whole."""
    fitted = []
    for hint in hints:
        try:
            fitted.append(fit(value, hint))
        except MisfitError:
            continue
    if not fitted:
        raise MisfitError
    return next((item for item in fitted if type(item) is type(value)), fitted[0])


def _fit_plain(value: Any, hint: Any) -> Any:
    if hint is NoneType:
        return _require(value is None, value)
    if hint is float:
        return _number(value)
    if hint is int:
        number = value if isinstance(value, int) and not isinstance(value, bool) else _number(value)
        return int(_require(number == int(number), number))
    if isinstance(value, Mapping) and hasattr(hint, "declared"):  # a group of settings, made over its defaults
        return hint(**value)
    return _require(isinstance(value, hint), value)


def _number(value: Any) -> float:
    """A finite float; also from text, because YAML reads 1e-4 (without a dot) as text."""
    _require(isinstance(value, int | float | str) or hasattr(value, "dtype"), value)
    _require(not isinstance(value, bool), value)
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise MisfitError from error
    return float(_require(math.isfinite(number), number))


def _require(fits: bool, value: Any) -> Any:
    if not fits:
        raise MisfitError
    return value


def type_text(hint: Any) -> str:
    """Name a type as a person would, for messages and tables."""
    names = {float: "number", int: "whole number", bool: "true or false", str: "text", NoneType: "null", Any: "any"}
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(type_text(argument) for argument in arguments))
    if origin is Literal:
        return " or ".join(repr(argument) for argument in arguments)
    if hint == list[list[float]]:
        return "points [[timestep, value], ...]"
    if origin is list:
        item = type_text(arguments[0])
        return f"list of {item}s" if item.endswith("number") else f"list of {item}"
    if origin is tuple:
        return f"[{', '.join(map(type_text, arguments))}]"
    if origin is dict or hint is dict:
        return "mapping"
    if origin is not None:
        return "function"
    return names.get(hint) or {"type": "class"}.get(hint.__name__, "mapping")


def plain(value: Any) -> Any:
    """Return `value` as JSON data: classes and functions as "module:Name", arrays as lists.

    Raises:
        MisfitError: JSON cannot hold it.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if is_space(value):  # some are mappings or sequences too
        return space_to_dict(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence | set | frozenset):
        return [plain(item) for item in (sorted(value) if isinstance(value, set | frozenset) else value)]
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if hasattr(value, "__qualname__"):
        return f"{value.__module__}:{value.__qualname__}"
    if hasattr(value, "dtype"):
        return value.tolist()
    raise MisfitError(f"{type(value).__name__} cannot be stored as JSON")
