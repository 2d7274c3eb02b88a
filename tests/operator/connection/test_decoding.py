"""JSON that is nested without end, and lists of which one item at a time is held."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from reef_operator.connection.decoding import KEPT_DEPTH, decoded, decoded_list


@pytest.fixture(autouse=True)
def limit_of_the_operator() -> Iterator[None]:
    """Python's own limit of recursion: a library that another test used may have raised it."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield
    sys.setrecursionlimit(before)


TRICKY = '{"a": "]}\\\\\\"[{", "b": {"c": []}}'


def deep(levels: int) -> str:
    return '{"x": "]}\\"", "a": [' * levels + "1" + "]}" * levels


def depth_of(value: Any) -> int:
    depth = 0
    while isinstance(value, dict | list):
        depth, value = depth + 1, value["a"] if isinstance(value, dict) else value[0]
    return depth


@pytest.mark.parametrize("text", ["1", "[]", TRICKY, '"x"', deep(20)])
def test_what_python_can_decode_is_as_it_was(text: str):
    assert decoded(text) == decoded(text.encode()) == json.loads(text)


@pytest.mark.parametrize("levels", [600, 975, 20_000])
def test_what_is_too_deep_ends_in_null_and_what_is_beside_it_stays(levels: int):
    document = decoded(f'{{"metadata": {TRICKY}, "a": {deep(levels)}, "status": [1, {TRICKY}]}}')
    assert document["metadata"] == json.loads(TRICKY)
    assert document["status"] == [1, json.loads(TRICKY)]
    assert depth_of(document) == KEPT_DEPTH


def test_a_list_is_kept_item_by_item():
    items = ["1", TRICKY, deep(2000), '{"drop": true}', "[]"]
    text = f' {{"kind": "L", "items" : [ {" , ".join(items)} ], "metadata": {{"continue": "more"}}}}\n'
    kept, metadata = decoded_list(text.encode(), lambda item: None if item == {"drop": True} else [item])
    assert metadata == {"continue": "more"}
    assert len(kept) == 4
    assert kept[:2] == [[1], [json.loads(TRICKY)]]
    assert depth_of(kept[2][0]) == KEPT_DEPTH


@pytest.mark.parametrize("text", ['{"items": [], "metadata": {}}', '{"metadata":{},"items":null}', "{}"])
def test_an_empty_list(text: str):
    assert decoded_list(text.encode(), dict) == ([], {})


@pytest.mark.parametrize("text", ["", "[]", "<html>", '{"items": [{', '{"items": [{}', '{"items": [}', '{"a"}'])
def test_what_is_no_list_is_said(text: str):
    with pytest.raises(ValueError, match=r"."):
        decoded_list(text.encode(), dict)
