"""`reef data`: recorded episodes on the screen, and in another form."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from s3_server import S3

from reef.cli.main import main
from reef.offline.episode_files import recorded_in


def step(**changed: Any) -> dict[str, Any]:
    whole = {"obs": [0.0, 0.5], "action": 1, "next_obs": [1.0, 1.0], "reward": 2.0}
    return whole | {"terminated": False, "truncated": False} | changed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = [[step(), step(terminated=True)], [step(action_logp=-0.7, reward={"a": 1.0, "b": 4.0})]]
    text = "".join(json.dumps({"steps": steps}) + "\n" for steps in lines)
    (tmp_path / "episodes.json").write_text(text + '{"steps": [{"obs"\n{"steps": []}\n')
    return tmp_path


def test_stats_are_those_of_whole_episodes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "stats", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "episodes": 2,
        "steps": 3,
        "reward_mean": 4.5,
        "reward_min": 4.0,
        "reward_max": 5.0,
        "length_mean": 1.5,
        "length_min": 1,
        "length_max": 2,
        "terminated": 1,
        "with_logp": 1,
        "left_out": 2,
    }


def test_inspect_shows_what_a_step_holds(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "inspect", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "obs            float[2], in 3 of 3 steps" in shown
    assert "action_logp    float, in 1 of 3 steps" in shown
    assert "2 left out, the first is" in shown
    assert "it is no JSON, perhaps cut off" in shown


def test_convert_keeps_the_steps(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = folder / "numbers.json", folder / "all.parquet"
    source.write_text(json.dumps({"steps": [step(), step(terminated=True)]}) + "\n")
    assert main(["data", "convert", str(source), str(out)]) == 0
    assert "1 episodes written to" in capsys.readouterr().out
    ((_, steps),) = recorded_in(out)
    assert list(steps()) == [step(), step(terminated=True)]


def test_infos_are_packed_once(folder: Path) -> None:
    (folder / "infos.json").write_text(json.dumps({"steps": [step(info={"x": [1]})]}) + "\n")
    for source, out in (("infos.json", "a.parquet"), ("a.parquet", "b.parquet")):
        assert main(["data", "convert", str(folder / source), str(folder / out)]) == 0
        ((_, steps),) = recorded_in(folder / out)
        assert json.loads(steps()[0]["info"]) == {"x": [1]}


@pytest.mark.parametrize("reward", ["much", None, [1, 2], {"a": "much"}, {"a": None}])
@pytest.mark.parametrize("what", [["stats"], ["inspect"], ["convert", "out.json"]])
def test_an_episode_whose_reward_is_no_number_is_left_out(
    reward: Any, what: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [[step(), step(reward=reward)], [step()]]
    Path("in.json").write_text("".join(json.dumps({"steps": steps}) + "\n" for steps in lines))
    assert main(["data", what[0], "in.json", *what[1:]]) == 0
    shown = capsys.readouterr().out
    assert "1 left out, the first is in.json, line 1: the reward " in shown
    assert " is no number" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["stats", "nowhere.json"], "'nowhere.json': there is no such file"),
        (["convert", "a.json"], "reef data convert PATH OUT writes a file"),
        (["stats", "a.json", "b.json"], "reef data convert PATH OUT writes a file"),
        (["convert", "a.json", "b.json", "--json"], "--json: convert prints no numbers"),
        (["convert", "a.json", "b.csv"], "b.csv: expected a file that ends with .json, .jsonl or .parquet"),
    ],
)
def test_wrong_use_is_said(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_files_without_an_episode_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.json").write_text("\n")
    assert main(["data", "stats", str(tmp_path)]) == 2
    assert "no episode can be read. Every file is empty." in capsys.readouterr().err


def test_columns_of_others_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = pa.table(
        {"x": [0.0, 1.0, 2.0], "v": [5.0] * 3, "a": [1] * 3, "r": [1.0] * 3, "done": [0, 0, 1], "id": [7] * 3}
    )
    parquet.write_table(table, tmp_path / "theirs.parquet")
    columns = {"obs": ["x", "v"], "actions": "a", "rewards": "r", "terminateds": "done", "episode_id": "id"}
    ours = tmp_path / "ours.json"
    given = ["--columns", json.dumps(columns)]
    assert main(["data", "convert", str(tmp_path / "theirs.parquet"), str(ours), *given]) == 0
    ((_, steps),) = recorded_in(ours)
    assert [one["obs"] for one in steps()] == [[0.0, 5.0], [1.0, 5.0], [2.0, 5.0]]
    assert [one["next_obs"][0] for one in steps()] == [1.0, 2.0, 2.0]
    assert main(["data", "stats", str(tmp_path / "theirs.parquet"), *given]) == 0
    assert "steps          3" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ('{"obs": "x"}', "--columns: 'actions' is missing"),
        ('{"observations": "x"}', "--columns.observations: there is no such name"),
        ("x", "is no JSON"),
    ],
)
def test_wrong_names_of_columns_are_said(columns: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with suppress(SystemExit):
        assert main(["data", "stats", "a.parquet", "--columns", columns]) == 2
    assert message in capsys.readouterr().err


def test_files_of_an_object_store_are_read(folder: Path, s3: S3, capsys: pytest.CaptureFixture[str]) -> None:
    (s3.bucket / "episodes.json").write_bytes((folder / "episodes.json").read_bytes())
    assert main(["data", "stats", "s3://bucket/episodes.json", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == 2
    assert main(["data", "stats", "s3://nobucket/episodes.json"]) == 2
    assert "'s3://nobucket': cannot list it: NoSuchBucket" in capsys.readouterr().err
