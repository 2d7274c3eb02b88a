from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reef.errors import StorageError
from reef.run.reporters.files import ResultFiles, read_results
from reef.run.reporters.reporter import Run
from reef.run.stopping import StopConditions


def run(folder: Path, **fields: Any) -> Run:
    return Run(
        folder=folder,
        algorithm="PPO",
        environment="CartPole-v1",
        config={"lr": 1e-3, "clip": float("inf")},
        stop=StopConditions({}),
        **fields,
    )


def result(iteration: int, **more: Any) -> dict[str, Any]:
    return {
        "training_iteration": iteration,
        "episode_reward_mean": None if iteration == 1 else float(iteration),
        "hist_stats": {"episode_reward": [1.0, 2.0]},
        "config": {"lr": 1e-3},
        "info": {"learner": {"default_policy": {"learner_stats": {"kl": 0.5}}}},
        **more,
    }


def write(run: Run, *results: dict[str, Any]) -> None:
    files = ResultFiles()
    files.start(run)
    for one in results:
        files.report(one)
    files.finish(None)


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "progress.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_nothing_is_written_before_the_first_result(tmp_path: Path) -> None:
    write(run(tmp_path / "a" / "b"))
    assert not (tmp_path / "a").exists()


def test_three_files(tmp_path: Path) -> None:
    write(run(tmp_path / "a"), result(1), result(2))
    folder = tmp_path / "a"
    assert json.loads((folder / "params.json").read_text()) == {"lr": 1e-3, "clip": None}
    assert list(read_results(folder)) == [result(1), result(2)]
    first, second = rows(folder)
    assert first["episode_reward_mean"] == ""
    assert second["info/learner/default_policy/learner_stats/kl"] == "0.5"
    assert not any(name.startswith(("config", "hist_stats")) for name in first)
    assert {path.name for path in folder.iterdir()} == {"params.json", "result.json", "progress.csv"}


def test_columns_that_come_later_reach_the_header(tmp_path: Path) -> None:
    write(run(tmp_path), result(1), result(2, evaluation={"episode_reward_mean": 9.0}), result(3))
    assert [row["evaluation/episode_reward_mean"] for row in rows(tmp_path)] == ["", "9.0", ""]


def test_resuming_drops_what_came_after_the_checkpoint(tmp_path: Path) -> None:
    write(run(tmp_path), *(result(i) for i in range(1, 6)))
    with (tmp_path / "result.json").open("a") as stream:
        stream.write('{"training_iter')  # killed while writing
    with (tmp_path / "progress.csv").open("a") as stream:
        stream.write("6")
    write(replace(run(tmp_path), restored_iteration=3), result(4, note="second life"))
    assert [r["training_iteration"] for r in read_results(tmp_path)] == [1, 2, 3, 4]
    assert [row["training_iteration"] for row in rows(tmp_path)] == ["1", "2", "3", "4"]
    assert [row["note"] for row in rows(tmp_path)] == ["", "", "", "second life"]


def test_a_folder_that_cannot_be_made_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="storage-path"):
        write(run(tmp_path / "file" / "a"), result(1))


DAMAGE = {
    "result.json": [
        b"null", b"\xff", b"[1]", b"{", b"[" * 100_000, b'{"training_iteration": null}', b'{"training_iteration": "3"}',
        b'{"training_iteration": 3, "timesteps_total": "many"}', b'{"training_iteration": 1e999}',
    ],
    "progress.csv": [b"null", b"\xff", b'"' + b"x" * 200_000 + b'"', b"1,2,3,4,5,6,7,8,9", "²,,,".encode()],
}  # fmt: skip


@pytest.mark.parametrize(("name", "damage"), [(name, one) for name, all_ in DAMAGE.items() for one in all_])
def test_a_file_ends_before_a_damaged_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, damage: bytes
) -> None:
    write(run(tmp_path), *(result(i) for i in range(1, 5)))
    file = tmp_path / name
    ending = b"\r\n" if name == "progress.csv" else b"\n"
    lines = file.read_bytes().split(ending)
    place = 2 + (name == "progress.csv")  # after two results, and the header
    file.write_bytes(ending.join([*lines[:place], damage, *lines[place:]]))
    write(replace(run(tmp_path), restored_iteration=4), result(5))
    found = {
        "result.json": [r["training_iteration"] for r in read_results(tmp_path)],
        "progress.csv": [int(row["training_iteration"]) for row in rows(tmp_path)],
    }
    assert found == {"result.json": [1, 2, 3, 4, 5], "progress.csv": [1, 2, 3, 4, 5]} | {name: [1, 2, 5]}
    (warning,) = caplog.messages
    assert f"{file}: line {place + 1} " in warning


def test_a_header_that_is_damaged_begins_the_table_again(tmp_path: Path) -> None:
    write(run(tmp_path), result(1))
    table = tmp_path / "progress.csv"
    table.write_bytes(b"\xff" + table.read_bytes())
    write(replace(run(tmp_path), restored_iteration=1), result(2))
    assert [row["training_iteration"] for row in rows(tmp_path)] == ["2"]
