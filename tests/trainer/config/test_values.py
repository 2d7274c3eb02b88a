"""Conversions that lose nothing, and the refusal of all others."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest

from reef.config.values import MisfitError, fit, plain, type_text


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        (1, float, 1.0),
        ("1e-4", float, 1e-4),
        ("1e4", int, 10_000),
        (4000.0, int, 4000),
        (np.float32(0.5), float, 0.5),
        (np.int64(3), int, 3),
        ((64, 64), list[int], [64, 64]),
        ({"b", "a"}, list[str], ["a", "b"]),
        ("auto", int | Literal["auto"], "auto"),
        ("5", int | Literal["auto"], 5),
        (True, bool | float | None, True),
        (2, bool | float | None, 2.0),
        ([[0, 1], [10, "2e-1"]], float | list[list[float]], [[0.0, 1.0], [10.0, 0.2]]),
        ({"a": 1}, dict[str, float], {"a": 1.0}),
        (None, float | None, None),
        (print, Callable[..., Any], print),
    ],
)
def test_fits(value, hint, expected):
    fitted = fit(value, hint)
    assert fitted == expected
    assert type(fitted) is type(expected)


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (True, int),
        (True, float),
        (1, bool),
        ("yes", bool),
        (1.5, int),
        ("fast", float),
        (float("nan"), float),
        ("inf", float),
        (None, int),
        (1, str),
        ("ab", list[str]),
        ([1], dict[str, int]),
        ("always", int | Literal["auto"]),
        (3, Callable[..., Any]),
        (3, str | type),
        ([0.5], float),
    ],
)
def test_does_not_fit(value, hint):
    with pytest.raises(MisfitError):
        fit(value, hint)


def test_types_are_named_as_people_do():
    assert type_text(int | Literal["auto"]) == "whole number or 'auto'"
    assert type_text(float | list[list[float]] | None) == "number or points [[timestep, value], ...] or null"
    assert type_text(str | type | Callable[..., Any]) == "text or class or function"


def test_plain_names_classes_and_functions_by_their_module():
    value = {"class": np.ndarray, "function": pytest.raises, "array": np.arange(2), "set": {2, 1}, 3: (1, None)}
    assert plain(value) == {
        "class": "numpy:ndarray",
        "function": f"{pytest.raises.__module__}:raises",
        "array": [0, 1],
        "set": [1, 2],
        "3": [1, None],
    }


def test_what_json_cannot_hold_is_refused_by_its_type():
    with pytest.raises(MisfitError, match="object cannot be stored as JSON"):
        plain({"a": object()})
