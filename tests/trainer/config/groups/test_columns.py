"""`input_config.columns` names the columns of Parquet that others wrote."""

from __future__ import annotations

from typing import Any

import pytest

from reef.algorithms.bc import BCConfig
from reef.config.groups.columns import column_problems, named_columns
from reef.errors import ConfigError

COLUMNS = {"obs": ["x", "v"], "actions": "a", "rewards": "r", "terminateds": "done", "episode_id": "id"}


def test_names_are_those_of_steps() -> None:
    assert named_columns({}) is None
    assert list(column_problems({"columns": COLUMNS})) == []
    assert named_columns({"columns": COLUMNS}) == {
        "obs": ["x", "v"],
        "action": "a",
        "reward": "r",
        "terminated": "done",
        "episode": "id",
    }


@pytest.mark.parametrize(
    ("input_config", "message"),
    [
        (
            {"parallelism": 4},
            r"input_config=\{'parallelism': 4\}: 'parallelism' is for a reader of your own, .*Leave it",
        ),
        ({"columns": ["obs"]}, r"input_config.columns=\['obs'\]: expected names of columns, such as \{'columns'"),
        ({"columns": COLUMNS | {"reward": "r"}}, "input_config.columns.reward: there is no such .* mean 'rewards'"),
        ({"columns": COLUMNS | {1: "r"}}, "input_config.columns.1: there is no such name. There are obs, "),
        ({"columns": COLUMNS | {"t": 3}}, "input_config.columns.t=3: expected the name of a column"),
        ({"columns": COLUMNS | {"t": ["a", "b"]}}, r"columns.t=\['a', 'b'\]: expected the name of a column"),
        ({"columns": COLUMNS | {"obs": []}}, r"columns.obs=\[\]: expected a column, or a list of columns"),
        ({"columns": {**COLUMNS, "obs": None}}, "columns.obs=None: expected a column, or a list of columns"),
        ({"columns": {"obs": "x"}}, "input_config.columns: 'actions' is missing. Say which column has it"),
    ],
)
def test_what_names_none_is_refused(input_config: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BCConfig.from_dict({"env": "CartPole-v1", "input_": "a.parquet", "input_config": input_config}).build()
