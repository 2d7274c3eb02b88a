"""What `input_` and `input_config` mean together, as an algorithm reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from reef.algorithms.bc import BCConfig
from reef.algorithms.marwil import MARWILConfig
from reef.errors import ConfigError

COLUMNS = {
    "obs": ["x", "v", "angle", "turn"],
    "actions": "a",
    "rewards": "r",
    "terminateds": "done",
    "episode_id": "id",
}


def table(**changed: Any) -> pa.Table:
    """Two episodes of three steps; the first terminates."""
    columns = {name: np.arange(6) / 10 + place for place, name in enumerate(COLUMNS["obs"])}
    columns |= {"a": [0, 1, 0, 1, 0, 1], "r": [1.0, 2, 3, 4, 5, 6], "done": [0, 0, 1, 0, 0, 0]}
    columns |= {"id": ["first"] * 3 + ["second"] * 3, "state": [[0.5] * 4] * 6, "name": ["x"] * 6}
    return pa.table(columns | changed)


def steps_of(file: Path, columns: dict[str, Any], **settings: Any) -> Any:
    given = {"env": "CartPole-v1", "input_": str(file), "input_config": {"columns": columns}, **settings}
    with MARWILConfig.from_dict(given).build() as algorithm:
        buffer = algorithm.recorded.buffer  # type: ignore[attr-defined]
        return buffer.take(np.arange(len(buffer)))


def test_parquet_of_others_is_read_by_the_names_of_its_columns(tmp_path: Path) -> None:
    parquet.write_table(table(), tmp_path / "a.parquet")
    steps = steps_of(tmp_path / "a.parquet", COLUMNS, gamma=1.0)
    assert steps.rewards.tolist() == [6, 5, 3, 9, 5], "the last step of the second has no successor"
    np.testing.assert_allclose(steps.obs[1], [0.1, 1.1, 2.1, 3.1])
    assert steps.actions.tolist() == [0, 1, 0, 1, 0]
    assert steps.terminated.tolist() == [True] * 3 + [False] * 2
    assert steps.truncated.tolist() == [False] * 3 + [True] * 2


def test_a_column_may_hold_lists_and_successors(tmp_path: Path) -> None:
    parquet.write_table(table(next=[[0.25] * 4] * 6, cut=[False] * 5 + [True]), tmp_path / "a.parquet")
    steps = steps_of(tmp_path / "a.parquet", COLUMNS | {"obs": "state", "new_obs": "next", "truncateds": "cut"})
    assert steps.obs.tolist() == [[0.5] * 4] * 6
    assert steps.next_obs.tolist() == [[0.25] * 4] * 6


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"rewards": "reward"}, "it has no column 'reward'. It has "),
        ({"rewards": "R"}, "it has no column 'R'. Did you mean 'r'?"),
        ({"obs": "name"}, "its column 'name' holds string, expected numbers"),
        (
            {"obs": ["x", "state"]},
            "its column 'state' holds .*, expected a number, as it is in a list of columns of obs",
        ),
        ({"obs": ["x", "v"]}, r"an observation has the shape \(2,\), expected \(4,\)"),
        ({"episode_id": "state"}, "its column 'state' holds .*, expected the number of an episode"),
        ({"terminateds": "r"}, "terminated is 2.0, expected true or false"),
        ({"t": "r", "rewards": "t"}, "it has no column 't'"),
    ],
)
def test_columns_that_are_not_there_or_hold_something_else(
    columns: dict[str, Any], message: str, tmp_path: Path
) -> None:
    parquet.write_table(table(), tmp_path / "a.parquet")
    with pytest.raises(ConfigError, match=message):
        steps_of(tmp_path / "a.parquet", COLUMNS | columns)


def test_lines_of_json_have_no_columns(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"steps": []}) + "\n")
    with pytest.raises(ConfigError, match=r"input_config.columns: .*a.json is no .parquet file"):
        steps_of(tmp_path, COLUMNS)


def test_a_function_has_columns_of_its_own() -> None:
    seen = []

    def read(context: Any) -> Any:
        seen.append(context.input_config)
        step = {"obs": [0.0] * 4, "action": 1, "next_obs": [0.0] * 4, "reward": 1.0}
        return [[step | {"terminated": True, "truncated": False}]]

    config = BCConfig().environment("CartPole-v1")
    config.offline_data(input_=read, input_config={"columns": 5})
    with config.build():
        assert seen == [{"columns": 5}]


def test_each_place_of_a_mapping_says_what_it_leaves_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        parquet.write_table(table(), tmp_path / place / "good.parquet")
        (tmp_path / place / "bad.parquet").write_text("x")
    steps_of(tmp_path, COLUMNS, input_={str(tmp_path / place): 1 for place in ("a", "b")})
    for place in ("a", "b"):
        assert f"left out of the recorded episodes: {tmp_path / place / 'bad.parquet'}: it is no Parquet" in caplog.text


@pytest.mark.parametrize(("done", "cut"), [([0] * 6, [0, 1, 0, 0, 0, 0]), ([0, 1, 0, 0, 0, 0], [0] * 6)])
def test_a_row_after_the_end_is_no_successor(
    done: list[int], cut: list[int], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    parquet.write_table(table(done=done, cut=cut), tmp_path / "a.parquet")
    assert len(steps_of(tmp_path / "a.parquet", COLUMNS | {"truncateds": "cut"}).rewards) == 2, "of the second"
    assert "episode first: step 2 of 3 ended the episode, and others follow it" in caplog.text
