"""Decodes JSON from untrusted users: limits its nesting, and decodes a list one item at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

# Deeper than any valid document, including the levels that the API server adds around it.
KEPT_DEPTH = 100
_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"\s*")
_BRACKET = re.compile(
    r"""(?:[^][{}"]++|"(?:[^"\\]++|\\.)*+")*+([][{}])""", re.DOTALL
)  # the text before a bracket, and the bracket

Kept = TypeVar("Kept")


def decoded(content: bytes | str) -> Any:
    """Return a decoded JSON document, with null in place of objects and lists that are nested too deeply.

    Raises:
        ValueError: the content is not valid JSON.
    """
    text = content.decode() if isinstance(content, bytes) else content
    try:
        return json.loads(text)
    except RecursionError:
        return json.loads(_flattened(text))


def decoded_list(content: bytes, keep: Callable[[Any], Kept | None]) -> tuple[list[Kept], dict[str, Any]]:
    """Return what `keep` returns for each item of a Kubernetes list (None drops the item), and the list's metadata.

    Only one item is fully decoded at a time: a page of large objects does not fit into the operator's memory.

    Raises:
        ValueError: the content is not a JSON object.
    """
    text = content.decode().strip()
    kept: list[Kept] = []
    metadata: dict[str, Any] = {}
    try:
        at = _after(text, 0, "{")
        while text[at] != "}":
            key, at = _value(text, at)
            at = _after(text, at, ":")
            if key == "items" and text[at] == "[":
                at = _after(text, at, "[")
                while text[at] != "]":
                    item, at = _value(text, at)
                    if (found := keep(item)) is not None:
                        kept.append(found)
                    at = _after(text, at, "," if text[at] == "," else "")
                at = _after(text, at, "]")
            else:
                value, at = _value(text, at)
                metadata = value if key == "metadata" else metadata
            at = _after(text, at, "," if text[at] == "," else "")
    except IndexError:
        raise ValueError("the list ends too early") from None
    return kept, metadata


def _value(text: str, at: int) -> tuple[Any, int]:
    """Decode the value at position `at`; return it and the position of the next character that is not a space."""
    try:
        value, end = _DECODER.raw_decode(text, at)
    except RecursionError:
        end = next((place + 1 for place, depth in _brackets(text, at) if depth == 0), len(text))
        value = json.loads(_flattened(text[at:end]))
    return value, _after(text, end, "")


def _after(text: str, at: int, sign: str) -> int:
    """Check that `sign` is at position `at`; return the position of the next character that is not a space."""
    if not text.startswith(sign, at):
        raise ValueError(f"expected {sign!r} at character {at} of a list")
    found = _SPACE.match(text, at + len(sign))
    assert found is not None
    return found.end()


def _brackets(text: str, at: int = 0) -> Iterator[tuple[int, int]]:
    """Yield the position of each bracket outside of strings, and the nesting depth after it."""
    depth = 0
    for found in _BRACKET.finditer(text, at):
        depth += 1 if found[1] in "[{" else -1
        yield found.start(1), depth


def _flattened(text: str) -> str:
    """Return a JSON text with null in place of every object and list nested deeper than `KEPT_DEPTH`."""
    parts, after, before = [], 0, 0
    for place, depth in _brackets(text):
        if depth == KEPT_DEPTH + 1 and before == KEPT_DEPTH:
            parts.append(text[after:place])
        elif depth == KEPT_DEPTH and before == KEPT_DEPTH + 1:
            parts.append("null")
            after = place + 1
        before = depth
    return "".join([*parts, text[after:]])
