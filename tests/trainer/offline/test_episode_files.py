"""Episodes are written to JSON lines and to Parquet, and read back as they were."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from pyarrow import parquet
from tests.trainer.offline.test_episodes import reader

from reef.errors import StorageError
from reef.offline.episode_files import PlayedEpisode, episode_file, recorded_in
from reef.offline.places import files_of
from reef.offline.steps import one_by_one


def step(obs: Any, *, last: bool = False, **more: Any) -> dict[str, Any]:
    reached = np.array([1, 2], np.float32)
    step = {"obs": obs, "action": np.int64(2), "next_obs": reached, "reward": 0.5, "terminated": last}
    return step | {"truncated": False} | more


EPISODES = [
    PlayedEpisode(1, reward=1.0, steps=[step([0.0, 1.0]), step(np.zeros(2), last=True)]),
    PlayedEpisode(2, reward=0.5, steps=[step(np.ones(2), last=True)]),
]


def write(path: Path, episodes: list[PlayedEpisode]) -> Path:
    file = episode_file(str(path))
    for episode in episodes:
        file.add(episode)
    file.close()
    return path


@pytest.mark.parametrize("name", ["a.json", "a.parquet"])
def test_what_is_written_is_read(name: str, tmp_path: Path) -> None:
    (first, steps), (second, _) = one_by_one(recorded_in(write(tmp_path / name, EPISODES)))
    where = ["line 1", "line 2"] if name == "a.json" else ["episode 1", "episode 2"]
    assert [first, second] == [f"{tmp_path / name}, {place}" for place in where]
    assert steps()[1] == {
        "obs": [0.0, 0.0],
        "action": 2,
        "next_obs": [1.0, 2.0],
        "reward": 0.5,
        "terminated": True,
        "truncated": False,
    }
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_parquet_is_a_table_that_others_read(tmp_path: Path) -> None:
    table = parquet.read_table(write(tmp_path / "a.parquet", EPISODES))
    columns = ["episode", "obs", "action", "next_obs", "reward", "terminated", "truncated"]
    assert table.column_names == [*columns, "action_logp", "policy_action"]
    assert table["episode"].to_pylist() == [1, 1, 2]


def test_composite_observations_and_infos_go_into_parquet(tmp_path: Path) -> None:
    observed = spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Box(0, 1, (2, 2))})
    value = {"a": 2, "b": np.full((2, 2), 0.5, np.float32)}
    steps = [step(value, next_obs=value, last=True, info={"x": [1, "y"], "z": object})]
    path = write(tmp_path / "a.parquet", [PlayedEpisode(1, steps=steps)])
    ((_, read),) = recorded_in(path)
    assert json.loads(read()[0]["info"]) == {"x": [1, "y"], "z": "<class 'object'>"}
    (episode,) = reader(observed).read([path])
    assert episode.obs[0, 0].tolist() == [2, 0.5, 0.5, 0.5, 0.5]


def test_parquet_and_json_give_the_same_steps(tmp_path: Path) -> None:
    files = [write(tmp_path / name, EPISODES) for name in ("a.json", "a.parquet")]
    assert files_of(str(tmp_path)) == files
    from_json, from_parquet = (list(reader(chosen=True).read([file])) for file in files)
    for one, other in zip(from_json, from_parquet, strict=True):
        np.testing.assert_array_equal(one.obs, other.obs)
        np.testing.assert_array_equal(one.actions, other.actions)
        np.testing.assert_array_equal(one.terminated, other.terminated)


def test_a_column_of_another_type_than_in_the_first_episode_is_refused(tmp_path: Path) -> None:
    file = episode_file(str(tmp_path / "a.parquet"))
    file.add(EPISODES[0])
    with pytest.raises(StorageError, match=r"a\.parquet: episode 2 does not fit .*a file that ends with \.json"):
        file.add(PlayedEpisode(2, steps=[step({"a": 1})]))
    file.close()
    assert len(list(recorded_in(tmp_path / "a.parquet"))) == 1  # the episode before


def test_what_only_later_steps_have_is_kept(tmp_path: Path) -> None:
    """As of a policy whose first actions are random ones."""
    known = {"action_logp": -0.5, "policy_action": np.array([[1.5], [2.0]], np.float32)}
    first = [step([0, 1]), step([0, 1], last=True)]
    second = [step([0, 1]), step([0, 1], last=True, **known)]
    for name, episodes in {"a.parquet": [first, second], "b.parquet": [second, first]}.items():
        written = [PlayedEpisode(number, steps=steps) for number, steps in enumerate(episodes)]
        read = [steps() for _, steps in one_by_one(recorded_in(write(tmp_path / name, written)))]
        assert [set(found) - set(first[0]) for steps in read for found in steps] == [
            set(given) - set(first[0]) for steps in episodes for given in steps
        ]
        (found,) = (found for steps in read for found in steps if "action_logp" in found)
        assert (found["action_logp"], found["policy_action"]) == (-0.5, [1.5, 2.0])


def test_a_key_that_the_first_episode_does_not_have_is_refused(tmp_path: Path) -> None:
    file = episode_file(str(tmp_path / "a.parquet"))
    file.add(EPISODES[0])
    with pytest.raises(StorageError, match="episode 2 does not fit .*there is no column 'action_prob', only .*json"):
        file.add(PlayedEpisode(2, steps=[step([0, 1]), step([0, 1], action_prob=0.5)]))
    with pytest.raises(StorageError, match="episode 3 does not fit "):
        file.add(PlayedEpisode(3, steps=[step([0, 1], policy_action=[[1], [2, 3]])]))
    file.close()


@pytest.mark.parametrize("name", ["a.json", "a.parquet"])
def test_without_an_episode_there_is_no_new_file_and_an_old_one_stays(name: str, tmp_path: Path) -> None:
    assert not write(tmp_path / name, []).exists()
    write(tmp_path / name, EPISODES)
    write(tmp_path / name, [])
    assert len(list(one_by_one(recorded_in(tmp_path / name)))) == 2
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["a.json", "a.parquet"])
def test_an_old_file_is_replaced_by_the_first_episode(name: str, tmp_path: Path) -> None:
    write(tmp_path / name, EPISODES)
    write(tmp_path / name, EPISODES[:1])
    assert len(list(recorded_in(tmp_path / name))) == 1


def test_a_killed_writer_leaves_no_torn_parquet_under_its_name(tmp_path: Path) -> None:
    script = f"""
        import os, signal
        from reef.offline.episode_files import PlayedEpisode, episode_file
        file = episode_file({str(tmp_path / "a.parquet")!r})
        file.add(PlayedEpisode(1, steps=[{{"obs": 1}}] * 100))
        os.kill(os.getpid(), signal.SIGKILL)
    """
    killed = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet.part"]


@pytest.mark.parametrize(("limit", "value"), [("GROUP_ROWS", 20), ("GROUP_BYTES", 1000)])
def test_short_episodes_share_a_group_of_rows(
    limit: str, value: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"reef.offline.episode_files.{limit}", value)
    episodes = [PlayedEpisode(n, steps=[step([n, 1]), step([n, 2], last=True)]) for n in range(103)]
    path = write(tmp_path / "a.parquet", episodes)
    metadata = parquet.ParquetFile(path).metadata
    rows = [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)]
    assert 5 < len(rows) < 50
    assert set(rows[:-1]) == {rows[0]}
    assert 0 < rows[-1] < rows[0], "the last group is not full, and is not lost"
    assert [steps()[1]["obs"] for _, steps in one_by_one(recorded_in(path))] == [[n, 2] for n in range(103)]


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"PAR1 and then nothing", "it is no Parquet, perhaps cut off"), (b"", "it is no Parquet, perhaps cut off")],
)
def test_damaged_parquet_is_left_out_and_named(
    content: bytes, reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    damaged, whole = tmp_path / "a.parquet", write(tmp_path / "b.parquet", EPISODES)
    damaged.write_bytes(content)
    assert sum(episode.done.sum() for episode in reader().read([damaged, whole])) == 2
    assert f"left out of the recorded episodes: {damaged}: {reason}" in caplog.text


def test_parquet_of_somebody_else_is_left_out_with_its_columns(tmp_path: Path) -> None:
    import pyarrow as pa

    parquet.write_table(pa.table({"x": [1]}), tmp_path / "a.parquet")
    ((_, read),) = recorded_in(tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"it has no column 'episode', only \['x'\]"):
        read()


def test_episodes_longer_than_what_is_read_at_a_time_stay_whole(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("reef.offline.parquet_reader.ROWS", 3)
    path = write(tmp_path / "a.parquet", [PlayedEpisode(n, steps=[step([n, n])] * 7) for n in (1, 2)])
    assert [len(steps()) for _, steps in recorded_in(path)] == [7, 7]
