"""Steps are read alike, whether they are mappings or columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reef.offline.steps import ColumnSteps, LeftOut, column, optional_column, with_successors


def test_an_item_of_columns_is_a_step_of_plain_values() -> None:
    steps = ColumnSteps(
        {"obs": np.ones((2, 1)), "reward": np.array([1, 2]), "action_logp": [None, -0.5], "info": ["", None]}
    )
    assert list(steps) == [
        {"obs": [1.0], "reward": 1, "info": ""},
        {"obs": [1.0], "reward": 2, "action_logp": -0.5, "info": None},
    ]
    assert len(steps) == 2


@pytest.mark.parametrize("form", [list, ColumnSteps])
def test_a_column_has_a_value_for_each_step(form: Any) -> None:
    steps: Any = [{"reward": 1, "t": 0}, {"reward": 2, "t": None}]
    if form is ColumnSteps:
        steps = ColumnSteps({"reward": [1, 2], "t": [0, None]})
    assert column(steps, "reward") == [1, 2]
    assert optional_column(steps, "t") is None
    assert optional_column(steps, "x") is None
    assert optional_column(steps, "reward") == [1, 2]
    with pytest.raises(KeyError, match="x"):
        column(steps, "x")


@pytest.mark.parametrize("plain", [False, True])
def test_the_next_row_is_the_successor(plain: bool) -> None:
    def successors(*terminated: bool) -> list[Any]:
        columns: Any = {"obs": np.arange(len(terminated)), "terminated": np.array(terminated)}
        found = with_successors({key: values.tolist() for key, values in columns.items()} if plain else columns)
        assert len(found["obs"]) == len(found["terminated"]) == len(found["next_obs"])
        return list(found["next_obs"])

    assert successors(False, False, True) == [1, 2, 2]
    assert successors(False, False, False) == [1, 2], "the last step has none, and is left out"
    assert successors(True) == [0]
    with pytest.raises(ValueError, match="its last step has no successor"):
        successors(False)
    assert successors(False, True, False) == [1, 2, 2], "an episode that goes on after its end is refused later"


def test_only_the_first_reasons_are_kept() -> None:
    left_out = LeftOut()
    assert list(left_out.lines()) == []
    for number in range(5):
        left_out.add(f"line {number}", "x")
    assert left_out.count == 5
    assert list(left_out.lines()) == ["line 0: x", "line 1: x", "line 2: x", "2 more"]
