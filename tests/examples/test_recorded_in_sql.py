"""The program examples/recorded_in_sql.py: rows of a database are learned from."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def test_the_rows_are_episodes_that_are_learned_from(example: Any, tmp_path: Path) -> None:
    names = example("recorded_in_sql")
    assert names["fill"](tmp_path / "shop.db", seasons=20) > 0
    config = names["settings"](tmp_path / "shop.db").reporting(min_train_timesteps_per_iteration=128 * 5)
    with config.build() as algorithm:
        buffer = algorithm.recorded.buffer
        assert len(buffer) == 20 * names["DAYS"]
        assert buffer.state()["columns"]["terminated"].sum() == 20
    assert len(names["train"](config, 1)) == 1
