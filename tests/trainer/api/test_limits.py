"""Documents that are too large or too deep are refused, and in a time that does not depend on them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from reef.api.limits import MAX_BYTES, MAX_DEPTH, check_limits
from reef.errors import ConfigError


def nested(levels: int, inner: Any = 1) -> Any:
    for level in range(levels):
        inner = {"a": inner} if level % 2 else [inner]
    return inner


@pytest.mark.parametrize(
    "document",
    [
        None,
        1,
        "text",
        {},
        nested(MAX_DEPTH),
        {"a": "x" * (MAX_BYTES - 100)},
        {"many": [1, 2.5, None, True, "é", {}] * 1000},
    ],
)
def test_a_document_within_the_limits_passes(document: Any) -> None:
    check_limits(document)


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 100_000])
def test_one_level_too_many_is_refused(levels: int) -> None:
    with pytest.raises(ConfigError, match=f"more than {MAX_DEPTH} levels"):
        check_limits(nested(levels))


@pytest.mark.parametrize(
    "document",
    [
        {"a": "x" * MAX_BYTES},
        {"é" * (MAX_BYTES // 2): 1},
        {f"key{number}": number for number in range(40_000)},
        [{}] * MAX_BYTES,
        [[1.5] * 1000] * 100,
        [2 ** (MAX_BYTES * 4)],
    ],
)
def test_what_is_too_large_is_refused(document: Any) -> None:
    with pytest.raises(ConfigError, match="more than 256 KiB"):
        check_limits(document)


def test_what_refers_to_itself_is_not_followed_for_ever() -> None:
    """As YAML's aliases make it: of ten to the power of forty values, and one without end."""
    values: Any = [1]
    for _ in range(40):
        values = [values] * 10
    with pytest.raises(ConfigError, match="256 KiB"):
        check_limits(values)
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ConfigError, match="64 levels"):
        check_limits(endless)


@pytest.mark.parametrize("text", ["x", "é", "\n", "😀"])
def test_the_size_is_about_that_of_the_json_text(text: str) -> None:
    item = {"name": text * 20, "numbers": [1, 1234567, 1.5, -2.25e-7], "flags": [True, None]}
    size = len(json.dumps(item, ensure_ascii=False, separators=(",", ":")).encode())
    fits, count = [item] * int(0.8 * MAX_BYTES / size), int(1.25 * MAX_BYTES / size)
    check_limits(fits)
    with pytest.raises(ConfigError):
        check_limits([item] * count)
