"""Merges a user's template into a generated object, as `kubectl apply` does, and computes JSON merge patches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# The fields that identify an entry of a Kubernetes list.
_KEYS = ("name", "mountPath", "containerPort", "devicePath")
_APPENDED = ("tolerations", "envFrom")
# Entries of these lists are replaced as a whole, because each entry holds exactly one of several variants.
_REPLACED = ("env", "volumes")


def merged(under: Any, over: Any, field: str = "") -> Any:
    """Return `under` merged with `over`: mappings by key, lists by entry name, other values replaced.

    A null in a mapping removes the key. Lists of entries without a name replace the generated list, except
    tolerations and envFrom, which are added to it.
    """
    if isinstance(under, dict) and isinstance(over, dict):
        result = {key: value for key, value in under.items() if over.get(key, value) is not None}
        for key, value in over.items():
            if value is not None:
                result[key] = merged(under.get(key), value, key)
        return result
    if isinstance(under, list) and isinstance(over, list):
        if field in _APPENDED:
            return under + [entry for entry in over if entry not in under]
        if key := _list_key(field, under + over):
            return _by_key(under, over, field, key)
    return over


def _list_key(field: str, entries: list[Any]) -> str | None:
    # One volume may be mounted at several paths.
    keys = ("mountPath",) if field == "volumeMounts" else _KEYS
    if not all(isinstance(entry, dict) for entry in entries):
        return None
    return next((key for key in keys if all(isinstance(entry.get(key), str | int) for entry in entries)), None)


def _by_key(under: list[Any], over: list[Any], field: str, key: str) -> list[Any]:
    result = {entry[key]: entry for entry in under}
    for entry in over:
        whole = field in _REPLACED or entry[key] not in result
        result[entry[key]] = entry if whole else merged(result[entry[key]], entry)
    return list(result.values())


def compact(value: Any) -> Any:
    """Return a document without nulls and empty strings, which Kubernetes' own types omit too.

    In a merge patch, null means removal. Some API servers of version 1.20 read "" as null.
    """
    if isinstance(value, Mapping):
        return {key: compact(each) for key, each in value.items() if each is not None and each != ""}
    if isinstance(value, list | tuple):
        return [compact(each) for each in value]
    return value


def merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON merge patch that turns `before` into `after`; empty when they are equal."""
    patch: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            change = merge_patch(old, value)
            if change:
                patch[key] = change
        elif key not in before or old != value:
            patch[key] = value
    return patch
