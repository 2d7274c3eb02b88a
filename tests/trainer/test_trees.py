"""A state's way into JSON and arrays and back, and what may stand in the place of what."""

from __future__ import annotations

import json
import math
import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from reef.errors import CheckpointError, DamagedCheckpointError
from reef.trees import json_safe, put_arrays_back, require_like, take_arrays_out


def test_a_state_comes_back_as_it_was() -> None:
    state = {"a/b": [np.arange(3), {"~": np.array(True)}], "n": 2**70, "nothing": None, "text": "x"}
    arrays: dict[str, Any] = {}
    tree = json.loads(json.dumps(take_arrays_out(state, "", arrays)))
    back = put_arrays_back(tree, arrays)
    assert back.keys() == state.keys()
    assert (back["n"], back["nothing"], back["text"]) == (2**70, None, "x")
    np.testing.assert_array_equal(back["a/b"][0], [0, 1, 2])
    np.testing.assert_array_equal(back["a/b"][1]["~"], np.array(True))


@pytest.mark.parametrize("value", [object(), (1, 2), {1: 2}, {"$array": 1}, np.array(["a"]), np.array([None])])
def test_what_no_checkpoint_holds_is_named_with_its_place(value: Any) -> None:
    with pytest.raises(CheckpointError, match=r"at /a/0: .*Convert it in state\(\)"):
        take_arrays_out({"a": [value]}, "", {})


@pytest.mark.parametrize(
    ("tree", "arrays", "problem"),
    [
        ({"a": {"$array": "/a"}}, {}, "the array at /a is not there"),
        ({"a": {"$array": "/b"}}, {"/b": np.zeros(1)}, "the array at /a is not there"),
        ({"a": 1}, {"/b": np.zeros(1)}, "'/b' belongs nowhere"),
        ({"a": {"$array": "/a"}}, {"/a": np.array(["x"])}, "expected numbers"),
    ],
)
def test_arrays_that_do_not_belong_are_damage(tree: Any, arrays: dict[str, Any], problem: str) -> None:
    with pytest.raises(DamagedCheckpointError, match=problem):
        put_arrays_back(tree, arrays)


@pytest.mark.parametrize(
    ("stored", "own", "problem"),
    [
        ({}, {"a": 1}, "a is missing"),
        ({"a": "x"}, {"a": 1}, "a is 'x', expected a whole number, 0 or more"),
        ({"a": -1}, {"a": 1}, "a is -1"),
        ({"a": True}, {"a": 1}, "a is True"),
        ({"a": float("nan")}, {"a": 1.0}, "a is nan, expected a number"),
        ({"a": [1]}, {"a": {}}, r"a is \[1\], expected a mapping"),
        ({"a": np.zeros(2)}, {"a": np.zeros(3)}, r"a is an array of float64 with shape \[2\], expected .*\[3\]"),
        ({"a": np.zeros(3, np.int64)}, {"a": np.zeros(3)}, "a is an array of int64"),
        ({"a": np.full(3, np.nan)}, {"a": np.zeros(3)}, "a holds NaN"),
    ],
)
def test_what_cannot_take_the_place_is_refused(stored: Any, own: Any, problem: str) -> None:
    with pytest.raises(DamagedCheckpointError, match=problem):
        require_like(stored, own, "")


def test_what_can_take_the_place_is_taken() -> None:
    require_like({"a": 3, "b": 1, "c": "any", "more": 0}, {"a": 1, "b": 0.5, "c": None, "d": 1}, "", optional=("d",))
    require_like(np.zeros(2), np.zeros(3), "a", lengths=False)
    require_like(np.full(2, np.nan), np.full(2, np.inf), "a")


def test_a_long_value_is_not_printed() -> None:
    with pytest.raises(DamagedCheckpointError, match=re.escape("a is a list, expected a mapping")):
        require_like({"a": list(range(100))}, {"a": {}}, "")


def test_json_safe() -> None:
    value = {1: (np.int64(2), np.array([1.0, np.nan])), "x": {"y": math.inf}, "z": SimpleNamespace}
    assert json_safe(value) == {"1": [2, [1.0, None]], "x": {"y": None}, "z": str(SimpleNamespace)}
