"""A worker's episodes go into files of a folder, one after the other."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from s3_server import S3

from reef.errors import StorageError, StoreUnavailableError, WriteError
from reef.offline.episode_files import PlayedEpisode, recorded_in
from reef.offline.output_folder import OutputFolder
from reef.offline.places import files_of
from reef.offline.steps import one_by_one
from reef.offline.stored_files import recorded_files, recorded_in_all
from reef.storage import object_store

EPISODE = PlayedEpisode(1, steps=[{"obs": [0.0, 1.0], "action": 1}] * 20)
OTHER = replace(EPISODE, number=2)
COMPRESSED: dict[str, list[str] | None] = {"json": None, "parquet": ["obs"]}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def numbers(folder: Path, ending: str) -> list[str]:
    """Of the files, whose names are as documented."""
    form = re.compile(rf"output-\d{{4}}-\d\d-\d\d_\d\d-\d\d-\d\d_worker-3_(\d+)\.{ending}")
    found = [form.fullmatch(name) for name in names(folder)]
    assert all(found), names(folder)
    return [match[1] for match in found if match]


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_a_file_is_complete_once_it_has_its_size(form: str, tmp_path: Path) -> None:
    folder = OutputFolder(str(tmp_path / "new" / "folder"), 3, 700, COMPRESSED[form])
    for episode in (EPISODE, OTHER, EPISODE, OTHER, EPISODE):
        folder.add(episode)
    folder.close()
    files = files_of(str(tmp_path / "new" / "folder"))
    assert len(numbers(tmp_path / "new" / "folder", form)) == len(files) > 1
    assert sum(len(list(one_by_one(recorded_in(file)))) for file in files) == 5
    assert all(file.stat().st_size >= 700 for file in files[:-1])


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_two_runs_of_one_second_write_files_of_their_own(form: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("reef.offline.output_folder.time.strftime", lambda _: "2026-01-01_00-00-00")
    folders = [OutputFolder(str(tmp_path), 3, 10**6, COMPRESSED[form]) for _ in range(2)]
    for episode in (EPISODE, OTHER):
        for folder in folders:
            folder.add(episode)
    for folder in folders:
        folder.close()
    assert numbers(tmp_path, form) == ["0", "1"]
    assert [len(list(one_by_one(recorded_in(file)))) for file in files_of(str(tmp_path))] == [2, 2]


def test_without_an_episode_there_is_no_file(tmp_path: Path) -> None:
    OutputFolder(str(tmp_path), 0, 1, []).close()
    assert names(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"output='.*/file/x': the folder cannot be made: Not a directory\."):
        OutputFolder(str(tmp_path / "file" / "x"), 0, 1)


def test_what_the_disk_refuses_is_an_error_with_the_folder(tmp_path: Path) -> None:
    folder = OutputFolder(str(tmp_path), 0, 10**6)
    folder.add(EPISODE)
    stream = folder._file._stream  # type: ignore[union-attr]
    os.dup2(os.open("/dev/full", os.O_WRONLY), stream.fileno())
    with pytest.raises(WriteError, match=f"output='{tmp_path}': cannot be written: {os.strerror(errno.ENOSPC)}"):
        folder.add(EPISODE)
    folder.add(EPISODE)  # where there is room again
    folder.close()
    assert [len(list(recorded_in(file))) for file in files_of(str(tmp_path))] == [1, 1]


def test_columns_are_compressed_one_by_one(tmp_path: Path) -> None:
    step = {"obs": {"image": [[0.0, 1.0]], "speed": 1.0}, "action": [0.5]}
    folder = OutputFolder(str(tmp_path), 0, 10**6, ["obs"])
    folder.add(PlayedEpisode(1, steps=[step] * 50))
    folder.close()
    (file,) = files_of(str(tmp_path))
    group = parquet.ParquetFile(file).metadata.row_group(0)
    columns = {group.column(i).path_in_schema: group.column(i).compression for i in range(group.num_columns)}
    assert columns == {
        "episode": "UNCOMPRESSED",
        "obs.image.list.element.list.element": "LZ4",
        "obs.speed": "LZ4",
        "action.list.element": "UNCOMPRESSED",
        "action_logp": "UNCOMPRESSED",
        "policy_action.list.element": "UNCOMPRESSED",
    }
    ((_, steps),) = recorded_in(file)
    assert list(steps()) == [step] * 50


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_an_object_store_gets_each_file_when_it_is_complete(form: str, s3: S3) -> None:
    folder = OutputFolder("s3://bucket/team/episodes", 3, 1500, COMPRESSED[form])
    assert s3.files() == [], "what was written to try it is removed"
    folder.add(EPISODE)
    while not s3.files():
        folder.add(OTHER)
    folder.add(EPISODE)
    (first,) = s3.files()
    assert names(folder._folder) != [], "the open file is on this machine"
    folder.close()
    assert names(folder._folder) == []
    assert s3.files() == sorted([first, re.sub("_0([.])", r"_1\1", first)])
    assert re.fullmatch(rf"team/episodes/output-[\d_-]+_worker-3-[0-9a-f]{{8}}_0\.{form}", first)
    found = [steps() for _, steps in one_by_one(recorded_in_all(recorded_files("s3://bucket/team/episodes")))]
    assert all(list(steps) == EPISODE.steps for steps in found)
    assert len(found) > 2


def test_a_writer_that_is_killed_loses_the_open_file_alone(s3: S3) -> None:
    program = """
import os
from reef.offline.episode_files import PlayedEpisode
from reef.offline.output_folder import OutputFolder
episode = PlayedEpisode(1, steps=[{"obs": [0.0, 1.0], "action": 1}] * 20)
folder = OutputFolder("s3://bucket/killed", 0, 1000)
for _ in range(5):
    folder.add(episode)
os._exit(9)
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 9
    episodes = list(recorded_in_all(recorded_files("s3://bucket/killed")))
    assert len(episodes) == 4, "two complete files"


def test_two_workers_of_one_second_write_objects_of_their_own(s3: S3) -> None:
    for _ in range(2):
        folder = OutputFolder("s3://bucket/same", 0, 10**6)
        folder.add(EPISODE)
        folder.close()
    assert len(s3.files()) == 2


@pytest.mark.parametrize(
    ("address", "variables", "problem"),
    [
        ("s3://other/x", {}, "output='s3://other/x': cannot write .*NoSuchBucket.* Check the address and the environ"),
        ("s3://bucket/x", {"AWS_ACCESS_KEY_ID": "stranger"}, "output='s3://bucket/x': cannot write .*InvalidAccessKey"),
    ],
)
def test_a_store_that_refuses_ends_the_start(
    address: str, variables: dict[str, str], problem: str, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(StorageError, match=problem):
        OutputFolder(address, 0, 1)


def test_a_store_that_does_not_answer_is_an_error_and_leaves_no_file(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "RETRIES", 0)
    folder = OutputFolder("s3://bucket/x", 0, 10**6)
    folder.add(EPISODE)
    s3.stop()
    with pytest.raises(StoreUnavailableError, match="output='s3://bucket/x': cannot write output-"):
        folder.close()
    assert names(folder._folder) == []
