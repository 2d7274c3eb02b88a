"""What the settings are: for the command line, the documentation, and the schema that documents are checked with."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from reef.config.aliases import MOVED, RENAMED
from reef.config.declaration import Setting
from reef.config.refusals import Refusal
from reef.config.settings import Settings
from reef.config.values import plain, type_text


def settings_of(config_class: type[Settings]) -> list[Setting]:
    """All settings of a class that can be changed, described for people, group after group.

    Names are dotted inside another setting ("model.fcnet_hiddens"), types are text and defaults are JSON data.
    """
    return list(_infos(config_class()))


def _infos(defaults: Settings, prefix: str = "", group: str = "") -> Iterator[Setting]:
    for item in defaults.declared.values():
        if item.key in defaults.refusals:
            continue
        default = getattr(defaults, item.name)
        if isinstance(default, Settings):
            yield from _infos(default, f"{item.key}.", item.group)
            continue
        name, kind = f"{prefix}{item.key}", type_text(item.type)
        yield replace(item, name=name, group=item.group or group, type=kind, default=plain(default))


def json_schema(config_class: type[Settings]) -> dict[str, Any]:
    """The JSON schema of a class's settings; older spellings are in it, marked as deprecated."""
    known = {item.key: _property(item) for item in config_class.declared.values()}
    known |= {key: _refused(refusal) for key, refusal in config_class.refusals.items()}
    inside = {f"{key}.{name}": it for key in known for name, it in known[key].get("properties", {}).items()}
    shapes = known | inside
    old = {
        name: {**shapes[new], "deprecated": True, "description": f"Older spelling of {new}."}
        for name, new in (RENAMED | MOVED).items()
        if new in shapes and name not in known
    }
    return {"type": "object", "additionalProperties": False, "properties": {**known, **old}}


def _property(item: Setting) -> dict[str, Any]:
    shape = _shape(item.type)
    unit = f" Unit: {item.unit}." if item.unit else ""
    found = {
        **shape,
        "description": f"{item.doc}{unit}",
        "default": plain(item.fresh()),
        **({"enum": list(item.choices)} if item.choices else {}),
    }
    limits = {"minimum": item.minimum, "maximum": item.maximum, "exclusiveMinimum": item.above}
    place = _innermost(shape) if item.holds_many else found
    place.update({name: limit for name, limit in limits.items() if limit is not None})
    return found


def _refused(refusal: Refusal) -> dict[str, Any]:
    """Of any type: the trainer refuses another value with the advice, which a schema cannot say."""
    text = f"Leave it at {json.dumps(refusal.default)}: {refusal.advice}."
    return {"description": text, "default": refusal.default}


def _innermost(shape: dict[str, Any]) -> dict[str, Any]:
    """The part of a list's or mapping's schema that is about its numbers."""
    inside = shape.get("items") or shape.get("additionalProperties") or shape.get("anyOf", [None])[0]
    return _innermost(inside) if isinstance(inside, dict) else shape


def _shape(hint: Any) -> dict[str, Any]:
    """The JSON schema of a type; classes and functions are text, because documents name them."""
    simple = {bool: "boolean", int: "integer", float: "number", str: "string", NoneType: "null", type: "string"}
    origin, arguments = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and issubclass(hint, Settings):
        return json_schema(hint)
    if origin in (Union, UnionType):
        return _any_of([_shape(argument) for argument in arguments])
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is list:
        return {"type": "array", "items": _shape(arguments[0])}
    if origin is tuple:
        size = len(arguments)
        return {"type": "array", "items": _any_of([*map(_shape, arguments)]), "minItems": size, "maxItems": size}
    if origin is dict:
        return {"type": "object", "additionalProperties": _shape(arguments[1]) or True}
    if origin is not None:
        return {"type": "string"}
    return {"type": simple[hint]} if hint in simple else {}


def _any_of(shapes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    shapes = [inner for shape in shapes for inner in shape.get("anyOf", [shape])]
    different = [shape for index, shape in enumerate(shapes) if shape not in shapes[:index]]
    return different[0] if len(different) == 1 else {"anyOf": different}
