"""Whatever lies in a folder of recorded episodes, the good ones are read and the rest is left out with a reason.

No case may hang, end with an exception that is no ReefError, run code from a file or fill the memory.
"""

from __future__ import annotations

import json
import os
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.trainer.offline.test_episode_files import EPISODES, write
from tests.trainer.offline.test_episodes import reader, step

from reef.batch import Rollout
from reef.cli.main import main
from reef.errors import ConfigError
from reef.offline import episode_files, parquet_reader
from reef.offline.places import files_of

pytestmark = pytest.mark.timeout(120)
GOOD = {"steps": [step(), step(terminated=True)]}
RAN: list[str] = []  # by a pickle


class Pickled:
    def __reduce__(self) -> Any:
        return RAN.append, ("a pickle ran",)


def table(rows: int = 2, **columns: Any) -> pa.Table:
    """Steps of one episode, as Reef writes them, with other columns."""
    usual: dict[str, Any] = {
        "episode": [1] * rows,
        "obs": [[0.0, 0.5]] * rows,
        "action": [1] * rows,
        "next_obs": [[1.0, 1.0]] * rows,
        "reward": [1.0] * rows,
        "terminated": [False] * rows,
        "truncated": [False] * rows,
    }
    return pa.table({name: column for name, column in (usual | columns).items() if column is not None})


def read(folder: Path) -> list[Rollout]:
    return list(reader().read(files_of(str(folder))))


def check(folder: Path, log: pytest.LogCaptureFixture, reason: str = "") -> list[Rollout]:
    """The good episode is read, others fit the spaces, and `reef data` reads the folder, too."""
    (folder / "z-good.json").write_text(json.dumps(GOOD) + "\n")
    episodes = read(folder)
    assert (len(episodes[-1]), episodes[-1].terminated[-1, 0]) == (2, True)
    for episode in episodes:
        assert episode.obs.shape[1:] == (1, 2)
        assert np.isfinite(episode.obs).all() and np.isfinite(episode.rewards).all()
        assert np.isin(episode.actions, [0, 1, 2]).all()
    for what in ("stats", "inspect"):
        assert main(["data", what, str(folder), "--json"]) == 0
    assert main(["data", "convert", str(folder), str(folder / "out.jsonl")]) == 0
    (folder / "out.jsonl").unlink()
    assert reason in log.text
    assert not RAN
    return episodes


# Of one line in place of an episode.
LINES: dict[str, tuple[str | bytes, str]] = {
    "cut": ('{"steps": [{"obs": [0, ', "it is no JSON, perhaps cut off"),
    "no-utf-8": (b"\xff\xfe\x00\x80{", "it is no JSON"),
    "zeros": (b"\0" * 1000, "it is no JSON"),
    "a-text": ('"steps"', "string indices must be integers"),
    "a-number": ("7", "not subscriptable"),
    "null": ("null", "not subscriptable"),
    "many-digits": ("1" * 5000, "it holds a number with too many digits"),
    "deep-lists": ("[" * 100_000, "too many lists in each other"),
    "deep-lists-closed": ("[" * 5000 + "]" * 5000, "too many lists in each other"),
    "deep-mappings": ('{"a":' * 5000 + "1" + "}" * 5000, "too many lists in each other"),
    "no-steps": ("{}", "'steps' is missing"),
    "steps-mapping": ('{"steps": {"obs": 1}}', "it has no steps"),
    "steps-text": ('{"steps": "abc"}', "it has no steps"),
    "steps-of-numbers": ('{"steps": [1, 2]}', "not subscriptable"),
    "steps-of-lists": ('{"steps": [["obs"], ["reward"]]}', "must be integers"),
    "a-foreign-list": ('[{"state": [1, 2], "a": 0}]', "list indices"),
    "a-batch-without-columns": ('{"type": "SampleBatch"}', "has no column"),
    "a-packed-batch": ('{"type": "SampleBatch", "rewards": "BCJNGGhAAAA", "obs": "x"}', "packed as a pickle"),
    "a-batch-of-no-policy": ('{"type": "MultiAgentBatch", "policy_batches": 3}', "expected a batch by policy"),
    "a-kind-that-is-a-list": ('{"type": ["SampleBatch"]}', "'steps' is missing"),
}
# Of the first of two steps.
STEPS: dict[str, tuple[dict[str, Any], str]] = {
    "obs-of-another-length": ({"obs": [1.0]}, "expected (2,)"),
    "obs-too-deep": ({"obs": [[1.0, 2.0]]}, "expected (2,)"),
    "obs-ragged": ({"obs": [[1.0], [2.0, 3.0]]}, "expected (2,)"),
    "obs-nan": ({"obs": [float("nan"), 0]}, "holds a number that is not finite"),
    "obs-huge": ({"obs": [10**400, 0]}, "holds something that is no number"),
    "obs-texts": ({"obs": ["1", "2"]}, "holds something that is no number"),
    "obs-null": ({"obs": None}, "expected (2,)"),
    "obs-mapping": ({"obs": {"a": 1}}, "expected (2,)"),
    "obs-a-number": ({"obs": 3}, "expected (2,)"),
    "obs-of-40-lists": ({"obs": json.loads("[" * 40 + "1" + "]" * 40)}, "expected (2,)"),
    "obs-of-900-lists": ({"obs": json.loads("[" * 900 + "1" + "]" * 900)}, ""),
    "infos-of-400-mappings": ({"info": json.loads('{"a":' * 400 + "1" + "}" * 400)}, ""),
    "reward-nan": ({"reward": float("nan")}, "a reward is no finite number"),
    "reward-huge": ({"reward": 1e300}, "a reward is no finite number"),
    "reward-of-500-digits": ({"reward": 10**500}, "reward is not a number in each step"),
    "reward-text": ({"reward": "1.5"}, "reward is not a number in each step"),
    "reward-list": ({"reward": [1.0]}, ""),
    "reward-null": ({"reward": None}, "reward is not a number in each step"),
    "action-of-another-range": ({"action": 99}, "an action has 99, expected 1 to 3"),
    "action-negative": ({"action": -(2**63)}, "an action has"),
    "action-half": ({"action": 1.5}, "an action has"),
    "action-text": ({"action": "1"}, ""),
    "terminated-text": ({"terminated": "false"}, "terminated is not a number in each step"),
    "terminated-nan": ({"terminated": float("nan")}, "terminated is nan, expected true or false"),
    "terminated-seven": ({"terminated": 7}, "terminated is 7, expected true or false"),
    "truncated-list": ({"truncated": [True]}, ""),
    "ended-early": ({"terminated": True}, "step 1 of 2 ended the episode, and others follow it"),
    "out-of-order": ({"t": 5}, "its steps are out of order"),
}


@pytest.mark.parametrize("name", LINES)
def test_a_line_that_is_no_episode(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    line, reason = LINES[name]
    content = line.encode() if isinstance(line, str) else line
    (tmp_path / "a.json").write_bytes(content + b"\n" + json.dumps(GOOD).encode() + b"\n")
    assert len(check(tmp_path, caplog, reason)) == 2


@pytest.mark.parametrize("name", STEPS)
def test_a_step_that_is_none(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    changed, reason = STEPS[name]
    steps = [step(t=0) | changed, step(t=1, terminated=True)]
    (tmp_path / "a.json").write_text(json.dumps({"steps": steps}) + "\n")
    assert len(check(tmp_path, caplog, reason)) == (2 if "info" in changed else 1)


def pickled(_: Any) -> pa.Table:
    return table(obs=[pickle.dumps(Pickled())] * 2)


# Parquet that somebody else made.
TABLES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "pickles": (pickled, "holds binary, which is not read, as it may be a pickle"),
    "pickles-of-one-size": (
        lambda _: table(obs=pa.array([b"abcd"] * 2, pa.binary(4))), "which is not read, as it may be a pickle"),
    "lists-of-pickles": (lambda _: table(action=[[pickle.dumps(Pickled())]] * 2), "may be a pickle"),
    "texts": (lambda _: table(obs=["[0, 1]"] * 2), "holds string, expected numbers"),
    "categories": (lambda _: table(action=pa.array(["a", "b"]).dictionary_encode()), "expected numbers"),
    "dates": (lambda _: table(reward=pa.array([0, 1], pa.timestamp("s"))), "expected numbers"),
    "decimals": (lambda _: table(reward=pa.array([1, 2], pa.decimal128(5, 1))), "expected numbers"),
    "no-numbers": (lambda _: table(episode=None), "it has no column 'episode'"),
    "no-rewards": (lambda _: table(reward=None), "'reward' is missing"),
    "no-rows": (lambda _: table(rows=0), ""),
    "no-columns": (lambda _: pa.table({}), "it has no column 'episode'"),
    "numbers-missing": (lambda _: table(episode=[1, None]), "a row has no number of its episode"),
    "numbers-nan": (lambda _: table(episode=[1.0, float("nan")]), "the number of an episode is not finite"),
    "numbers-lists": (lambda _: table(episode=[[1], [1]]), "expected the number of an episode"),
    "ragged": (lambda _: table(obs=[[0.0], [0.0, 1.0]]), "expected (2,)"),
    "nulls": (lambda _: table(obs=[[0.0, 1.0], None]), "expected (2,)"),
    "nulls-inside": (lambda _: table(obs=[[0.0, 1.0], [0.0, None]]), "holds something that is no number"),
    "all-null": (lambda _: table(reward=pa.nulls(2)), "reward is not a number in each step"),
    "infinite": (lambda _: table(obs=[[0.0, float("inf")]] * 2), "holds a number that is not finite"),
    "half-actions": (lambda _: table(action=[1.5, 1.0]), "an action has"),
    "flags-of-texts": (lambda _: table(terminated=["no", "yes"]), "expected numbers"),
    "an-end-in-the-middle": (lambda _: table(terminated=[True, False]), "step 1 of 2 ended the episode"),
    "out-of-order": (lambda _: table(t=[1, 0]), "its steps are out of order"),
    "out-of-order-unsigned": (lambda _: table(t=pa.array([1, 0], pa.uint32())), "its steps are out of order"),
    "a-number-twice": (
        lambda _: table(3, episode=[1, 2, 1]), "rows with its number are before other episodes, too"),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_a_table_that_is_none_of_steps(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make, reason = TABLES[name]
    parquet.write_table(make(tmp_path), tmp_path / "a.parquet")
    check(tmp_path, caplog, reason)


def test_a_column_that_is_there_twice(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    twice = table()
    parquet.write_table(twice.append_column("obs", twice["obs"]), tmp_path / "a.parquet")
    check(tmp_path, caplog, "it has the column 'obs' twice")


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd", "none"])
def test_a_step_that_grows_when_it_is_unpacked(
    codec: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_reader, "STEP_BYTES", 1024 * 1024)
    bomb = table(obs=[np.zeros(300_000)] * 2)
    parquet.write_table(bomb, tmp_path / "a.parquet", compression=codec)
    assert (tmp_path / "a.parquet").stat().st_size < 20_000, "it is 4.8 MB in memory"
    check(tmp_path, caplog, "a step of it takes 2 MiB, more than the 1 MiB that are read")


def test_a_text_that_grows_when_it_is_unpacked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its one text is stored once, and would be in memory two hundred times: few rows are read at a time."""
    monkeypatch.setattr(parquet_reader, "EPISODE_BYTES", 10 * 2**20)
    parquet.write_table(table(200, info=["x" * 1_000_000] * 200), tmp_path / "a.parquet")
    with parquet.ParquetFile(tmp_path / "a.parquet") as opened:
        batches = list(parquet_reader.batches_of(tmp_path / "a.parquet", opened, ["obs", "info"]))
    assert [batch.num_rows for batch in batches] == [10] * 20
    (tmp_path / "z-good.json").write_text(json.dumps(GOOD) + "\n")
    assert main(["data", "stats", str(tmp_path)]) == 0
    assert len(read(tmp_path)) == 2, "to learn from, texts are not read"


def test_an_episode_that_never_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_reader, "EPISODE_BYTES", 1024 * 1024)
    parquet.write_table(table(50_000), tmp_path / "a.parquet")
    check(tmp_path, caplog, "it takes more than the 1 MiB that an episode may")


def test_a_line_that_never_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(episode_files, "LINE_BYTES", 2**20)
    line = json.dumps(GOOD).encode() + b"\n"
    (tmp_path / "a.json").write_bytes(b'{"steps": [' + b" " * 2**22 + b"\n" + line)
    (tmp_path / "b.json").write_bytes(b" " * 2**20)
    assert len(check(tmp_path, caplog, "a.json, line 1: it is longer than 1 MiB")) == 2


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", ["a.json", "a.parquet"])
def test_a_file_that_is_cut_anywhere(name: str, seed: int, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    content = write(tmp_path / name, EPISODES * 5).read_bytes()
    (tmp_path / name).write_bytes(content[: random.Random(seed).randrange(len(content))])
    check(tmp_path, caplog)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("name", ["a.json", "a.parquet"])
def test_a_file_with_flipped_bytes(name: str, seed: int, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    draw = random.Random(seed)
    content = bytearray(write(tmp_path / name, EPISODES * 5).read_bytes())
    for _ in range(draw.randint(1, 8)):
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    (tmp_path / name).write_bytes(content)
    check(tmp_path, caplog)


def any_json(draw: random.Random, depth: int = 0) -> Any:
    """Any value, more often than not with the keys of a step."""
    kind = draw.randrange(9 if depth < 4 else 6)
    if kind < 6:
        return draw.choice([None, True, 0, -1, 1.5, 10**30, float("nan"), "", "obs", 2**63])
    if kind == 6:
        return [any_json(draw, depth + 1) for _ in range(draw.randrange(4))]
    keys = ["steps", "obs", "action", "next_obs", "reward", "terminated", "truncated", "type", "policy_batches", "t"]
    return {draw.choice(keys): any_json(draw, depth + 1) for _ in range(draw.randrange(6))}


@pytest.mark.parametrize("seed", range(10))
def test_lines_of_anything(seed: int, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    draw = random.Random(seed)
    lines = []
    for _ in range(20):
        steps = [step() for _ in range(draw.randint(1, 3))]
        draw.choice(steps)[draw.choice([*step(), "t", "action_logp", "info"])] = any_json(draw)
        batch = {"type": "SampleBatch", **{key: any_json(draw, 3) for key in ("obs", "actions", "rewards", "dones")}}
        lines += [{"steps": steps}, any_json(draw), batch]
    (tmp_path / "a.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    check(tmp_path, caplog)


def test_formats_beside_each_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path / "a.parquet", EPISODES)
    write(tmp_path / "b.json", EPISODES)
    (tmp_path / "b.json").rename(tmp_path / "c.parquet")
    write(tmp_path / "b.parquet", EPISODES)
    (tmp_path / "b.parquet").rename(tmp_path / "d.jsonl")
    (tmp_path / "e.json").write_text(json.dumps([{"a": 1}] * 50, indent=1))
    (tmp_path / "f.json").touch()
    (tmp_path / "g.parquet").touch()
    found = check(tmp_path, caplog, "c.parquet: it is no Parquet")
    assert sum(episodes.done.sum() for episodes in found) == 3


def test_a_pipe_is_not_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    os.mkfifo(tmp_path / "a.json")
    check(tmp_path, caplog)
    with pytest.raises(ConfigError, match="a.json': it is no file, but a pipe or the like"):
        files_of(str(tmp_path / "a.json"))


def test_links_that_lead_in_circles(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.json").symlink_to(tmp_path / "b.json")
    (tmp_path / "b.json").symlink_to(tmp_path / "a.json")
    (tmp_path / "deep").mkdir()
    for number in range(6):
        (tmp_path / "deep" / f"loop{number}").symlink_to(tmp_path)
    check(tmp_path, caplog)
    assert [path.name for path in files_of(f"{tmp_path}/**/*.json")] == ["z-good.json"]
    with pytest.raises(ConfigError, match="there is no such file"):
        files_of(str(tmp_path / "c.json"))


def test_what_is_left_out_is_counted_and_not_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.json").write_text("x\n" * 2000)
    check(tmp_path, caplog, "left out of the recorded episodes: 1997 more")
