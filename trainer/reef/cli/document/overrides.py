"""`--set PATH=VALUE`: changes to a job document before it is checked."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from typing import Any

from reef.errors import ConfigError


def apply_overrides(document: Any, assignments: Sequence[str]) -> Any:
    """Return a copy of a job document with `assignments` made.

    A path begins in `spec` ("config.lr", "stop.training_iteration", "workers[0].replicas") or in the document
    ("metadata.name"); a value is YAML. A new key is made on the way; whether it is a field is checked later.

    Raises:
        ConfigError: an assignment has another form, or leads into something that holds no keys.
    """
    from reef.api.loading import parse_value

    changed = copy.deepcopy(document)
    for assignment in assignments:
        path, equals, value = assignment.partition("=")
        if not (equals and path):
            raise ConfigError(f"--set {assignment}: expected PATH=VALUE, for example config.lr=0.001.")
        keys = re.sub(r"\[(\d+)\]", r".\1", path).split(".")
        if keys[0] not in ("spec", "metadata"):
            keys.insert(0, "spec")
        _assign(changed, keys, parse_value(value), assignment)
    return changed


def _assign(holder: Any, keys: list[str], value: Any, assignment: str) -> None:
    for depth, key in enumerate(keys):
        place: str | int = int(key) if isinstance(holder, list) and key.isdigit() else key
        if not isinstance(holder, dict) and not (isinstance(place, int) and place < len(holder)):
            where = ".".join(keys[:depth]) or "the document"
            held = f"has {len(holder)} items" if isinstance(holder, list) else f"is {holder!r}"
            raise ConfigError(f"--set {assignment}: {where} {held}, so that there is no {key!r} in it.")
        if depth == len(keys) - 1:
            holder[place] = value
        else:
            if isinstance(holder, dict) and holder.get(key) is None:
                holder[key] = {}
            holder = holder[place]
