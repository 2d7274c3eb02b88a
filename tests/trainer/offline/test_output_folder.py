"""A worker's episodes go into files of a folder, one after the other."""

from __future__ import annotations

import errno
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from reef.errors import StorageError, WriteError
from reef.offline.episode_files import PlayedEpisode, recorded_in
from reef.offline.output_folder import OutputFolder
from reef.offline.places import files_of

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
    assert sum(len(list(recorded_in(file))) for file in files) == 5
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
    assert [len(list(recorded_in(file))) for file in files_of(str(tmp_path))] == [2, 2]


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
