"""Recorded episodes in an object store are read a file at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from s3_server import S3

from reef import BCConfig
from reef.errors import ConfigError, StorageError, WriteError
from reef.offline import stored_files
from reef.offline.steps import one_by_one
from reef.offline.stored_files import StoredFile, recorded_files, recorded_in_all


def names(address: str) -> list[str]:
    return [file.name for file in recorded_files(address)]


def write(s3: S3, *files: str) -> None:
    """An episode into each, whose only step has the name as reward."""
    for name in files:
        (s3.bucket / name).parent.mkdir(exist_ok=True)
        (s3.bucket / name).write_text(json.dumps({"steps": [{"reward": name}]}) + "\n")


def on_disk(file: StoredFile) -> list[str]:
    """Names of the copies that are on this machine."""
    return sorted(path.name for path in file.copies._folder.rglob("*") if path.is_file())


def rewards(found: Iterator[Any]) -> list[str]:
    return [steps()[0]["reward"] for _, steps in found]


def test_an_address_is_a_file_a_folder_or_a_pattern(s3: S3) -> None:
    write(s3, "data/b.json", "data/a.parquet", "data/notes.txt", "data/c[1].jsonl", "data/deeper/d.json")
    assert names("s3://bucket/data/b.json") == ["b.json"]
    assert names("s3://bucket/data") == names("s3://bucket/data/") == ["a.parquet", "b.json", "c[1].jsonl"]
    assert names("s3://bucket/data/*.json*") == ["b.json", "c[1].jsonl"]


def test_places_on_this_machine_stay_what_they_are(s3: S3, tmp_path: Path) -> None:
    write(s3, "b.json")
    here = tmp_path / "a.json"
    here.write_text(json.dumps({"steps": [{"reward": "here"}]}))
    found = recorded_files([str(here), "s3://bucket/b.json"])
    assert found[0] == here
    assert rewards(recorded_in_all(found)) == ["here", "b.json"]


def test_a_file_that_two_addresses_mean_is_read_once(s3: S3) -> None:
    write(s3, "a.json", "b.json")
    found = recorded_files(["s3://bucket/b.json", "s3://bucket/*.json", "s3://bucket/b.json"])
    assert rewards(recorded_in_all(found)) == ["b.json", "a.json"]


def test_places_in_messages_are_addresses(s3: S3) -> None:
    write(s3, "a.json")
    ((place, _),) = recorded_in_all(recorded_files("s3://bucket/a.json"))
    assert place == "s3://bucket/a.json, line 1"


def test_episodes_that_are_read_together_have_the_address(s3: S3) -> None:
    parquet.write_table(pa.table({"episode": [1, 2, 3], "reward": [0.0] * 3}), s3.bucket / "a.parquet")
    found = one_by_one(recorded_in_all(recorded_files("s3://bucket/a.parquet")))
    assert [place for place, _ in found] == [f"s3://bucket/a.parquet, episode {number}" for number in (1, 2, 3)]


def test_the_disk_has_what_is_kept_and_the_file_that_is_read(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_files, "KEPT_BYTES", 50)  # one of the files
    write(s3, "a.json", "b.json", "c.json")
    files = recorded_files("s3://bucket")
    (first, *_) = (file for file in files if isinstance(file, StoredFile))
    assert on_disk(first) == [], "nothing is copied before it is read"
    for _ in range(2):
        seen = []
        for _, steps in recorded_in_all(files):
            seen.append((steps()[0]["reward"], on_disk(first)))
        assert seen == [
            ("a.json", ["a.json"]),
            ("b.json", ["a.json", "b.json"]),
            ("c.json", ["a.json", "c.json"]),
        ]
    assert on_disk(first) == ["a.json"]
    (s3.bucket / "a.json").unlink()
    assert rewards(recorded_in_all(files[:1])) == ["a.json"], "which was kept"


def test_files_of_one_name_have_copies_of_their_own(s3: S3) -> None:
    write(s3, "x/a.json", "y/a.json")
    files = recorded_files(["s3://bucket/x", "s3://bucket/y"])
    for _ in range(2):
        assert rewards(recorded_in_all(files)) == ["x/a.json", "y/a.json"]


def test_a_reading_that_is_given_up_leaves_no_copy(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_files, "KEPT_BYTES", 0)
    write(s3, "a.json")
    (file,) = recorded_files("s3://bucket/a.json")
    reading = recorded_in_all([file])
    next(reading)
    assert isinstance(file, StoredFile) and on_disk(file) == ["a.json"]
    reading.close()  # type: ignore[attr-defined]
    assert on_disk(file) == []


def test_a_disk_without_room_is_named(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    write(s3, "a.json")
    files = recorded_files("s3://bucket/a.json")
    monkeypatch.setattr(stored_files.RemoteFolder, "download", full)
    with pytest.raises(WriteError, match=r"input_='s3://bucket/a.json': it cannot be copied to .*: No space.* Set TMP"):
        list(recorded_in_all(files))


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        (
            "s3://bucket/none.json",
            "input_='s3://bucket/none.json': there is no such file, nor a folder with files",
        ),
        ("s3://bucket/empty", "input_='s3://bucket/empty': there is no such file, nor a folder"),
        ("s3://bucket/*.txt", r"input_='s3://bucket/\*.txt': there is no such file"),
        ("http://host/a.json", "input_='http://host': expected an object store and a"),
    ],
)
def test_an_address_that_leads_to_nothing_is_named(address: str, problem: str, s3: S3) -> None:
    with pytest.raises(ConfigError, match=problem):
        recorded_files(address)


def test_secrets_of_an_address_are_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        recorded_files("s3://me:secret@bucket/e.json")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "key", "problem"),
    [
        ("s3://bucket/b.json", "wrong", "input_='s3://bucket': cannot list it: SignatureDoesNotMatch.* AWS_SECRET_A"),
        (
            "s3://other/b.json",
            None,
            "input_='s3://other': cannot list it: NoSuchBucket.* Check the address and the",
        ),
    ],
)
def test_a_store_that_refuses_is_named_with_the_setting(
    address: str, key: str | None, problem: str, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    if key:
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key)
    with pytest.raises(StorageError, match=problem):
        recorded_files(address)


def test_an_algorithm_learns_from_an_address(s3: S3) -> None:
    obs = [0.0] * 4
    step = {"obs": obs, "action": 1, "next_obs": obs, "reward": 1.0, "terminated": False, "truncated": False}
    episode = {"number": 0, "complete": True, "steps": [step] * 9 + [step | {"terminated": True}]}
    (s3.bucket / "episodes.json").write_text(json.dumps(episode) + "\n")
    config = BCConfig().environment("CartPole-v1").offline_data(input_="s3://bucket/episodes.json")
    with config.training(lr=0.01).reporting(min_train_timesteps_per_iteration=10_000).build() as algorithm:
        algorithm.train()
        assert algorithm.compute_single_action(np.zeros(4, np.float32), explore=False) == 1
