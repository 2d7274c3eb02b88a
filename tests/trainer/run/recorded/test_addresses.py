"""Recorded episodes in an object store."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from s3_server import S3

from reef import BCConfig
from reef.errors import ConfigError, StorageError
from reef.run.recorded.addresses import on_this_machine


def names(address: str) -> list[tuple[str, bytes]]:
    return [(Path(place).name, Path(place).read_bytes()) for place in on_this_machine(address)]


def test_a_file_a_folder_and_a_pattern_are_copied(s3: S3) -> None:
    folder = s3.bucket / "data"
    folder.mkdir()
    for name in ("b.json", "a.parquet", "notes.txt", "c[1].jsonl"):
        (folder / name).write_text(name)
    (folder / "deeper").mkdir()
    (folder / "deeper" / "d.json").write_text("not of the folder")
    assert names("s3://bucket/data/b.json") == [("b.json", b"b.json")]
    assert [name for name, _ in names("s3://bucket/data")] == ["a.parquet", "b.json", "c[1].jsonl"]
    assert names("s3://bucket/data/") == names("s3://bucket/data")
    assert [name for name, _ in names("s3://bucket/data/*.json*")] == ["b.json", "c[1].jsonl"]


def test_places_on_this_machine_stay_what_they_are(s3: S3) -> None:
    (s3.bucket / "b.json").write_text("there")
    first, second = on_this_machine(["data/*.json", "s3://bucket/b.json"])
    assert first == "data/*.json"
    assert Path(second).read_text() == "there"


def test_a_file_that_two_addresses_mean_is_read_once(s3: S3) -> None:
    for name in ("a.json", "b.json"):
        (s3.bucket / name).write_text(name)
    found = on_this_machine(["s3://bucket/b.json", "s3://bucket/*.json", "s3://bucket/b.json"])
    assert [Path(place).name for place in found] == ["b.json", "a.json"]


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        (
            "s3://bucket/none.json",
            "input_='s3://bucket/none.json': there is no such file, nor a folder with files",
        ),
        ("s3://bucket/empty", "input_='s3://bucket/empty': there is no such file, nor a folder"),
        ("s3://bucket/*.txt", r"input_='s3://bucket/\*.txt': there is no such file"),
        ("http://host/a.json", "input_='http://host/a.json': storage 'http://host': expected an object store and a"),
    ],
)
def test_an_address_that_leads_to_nothing_is_named(address: str, problem: str, s3: S3) -> None:
    with pytest.raises(ConfigError, match=problem):
        on_this_machine(address)


def test_secrets_of_an_address_are_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        on_this_machine("s3://me:secret@bucket/e.json")
    assert "secret" not in str(caught.value)


def test_a_store_that_refuses_is_told(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(StorageError):
        on_this_machine("s3://bucket/b.json")


def test_an_algorithm_learns_from_an_address(s3: S3) -> None:
    obs = [0.0] * 4
    step = {"obs": obs, "action": 1, "next_obs": obs, "reward": 1.0, "terminated": False, "truncated": False}
    episode = {"number": 0, "complete": True, "steps": [step] * 9 + [step | {"terminated": True}]}
    (s3.bucket / "episodes.json").write_text(json.dumps(episode) + "\n")
    config = BCConfig().environment("CartPole-v1").offline_data(input_="s3://bucket/episodes.json")
    with config.training(lr=0.01).reporting(min_train_timesteps_per_iteration=10_000).build() as algorithm:
        algorithm.train()
        assert algorithm.compute_single_action(np.zeros(4, np.float32), explore=False) == 1
