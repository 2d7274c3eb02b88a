"""Where runs are written: what cannot be written is refused in words, and a failed disk is told from a wrong path."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from reef.errors import CheckpointError, StorageError, WriteError
from reef.run.checkpoint import CheckpointStore, find_checkpoint, read_metadata
from reef.run.folders import newer_start, newest_start, writable_folder

NOBODY = 65534


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Path]:
    """A folder that this process may not look into, also where the tests run as root."""
    folder = tmp_path / "closed"
    folder.mkdir(mode=0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    yield folder
    os.seteuid(user)


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A file system that takes no writes, with the folder `known` in it."""
    folder = tmp_path / "disk"
    (folder / "known").mkdir(parents=True)
    mounts = [["mount", "--bind", folder, folder], ["mount", "-o", "remount,bind,ro", folder]]
    for command in mounts:
        if subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("this machine does not let the tests mount")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_path_that_may_not_be_looked_into_is_refused(closed: Path) -> None:
    with pytest.raises(StorageError, match="closed/run cannot be written .*Permission denied"):
        writable_folder(closed, "run")
    with pytest.raises(CheckpointError, match=r"cannot read .*checkpoint_000001.*Permission denied"):
        find_checkpoint(closed / "checkpoint_000001")


@pytest.mark.parametrize(
    ("path", "expected"),
    [("~nobody-has-this-name/x", "home directory"), ("a" * 300, "File name too long"), ("lost", "No such file")],
)
def test_a_path_that_cannot_be_is_refused(
    path: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lost").symlink_to(tmp_path / "nowhere")
    with pytest.raises(StorageError, match=expected):
        writable_folder(path, "run")
    with pytest.raises(CheckpointError):
        find_checkpoint(path)


def test_where_runs_are_already_a_disk_that_refuses_is_a_fault(read_only: Path) -> None:
    with pytest.raises(WriteError, match="Read-only file system"):
        writable_folder(read_only, "known")
    with pytest.raises(StorageError, match="Read-only file system") as refusal:
        writable_folder(read_only, "new")
    assert not isinstance(refusal.value, WriteError), "it never worked: a retry would not help"


def store_of(folder: Path, *iterations: int, algorithm: str = "PPO") -> CheckpointStore:
    store = CheckpointStore(folder)
    for iteration in iterations:
        store.save({"iteration": iteration}, {"iteration": iteration, "algorithm": algorithm, "config": {}})
    return store


def test_what_was_written_meanwhile_is_gone_on_from(tmp_path: Path) -> None:
    store = store_of(tmp_path, 1)
    first = newest_start(store, "PPO")
    assert first is not None
    assert newer_start(store, first, "PPO") is None
    store_of(tmp_path, 2)
    later = newer_start(store, first, "PPO")
    assert later is not None
    assert (later.state, read_metadata(later.checkpoint)["iteration"]) == ({"iteration": 2}, 2)


def test_a_damaged_one_is_no_newer_one(tmp_path: Path) -> None:
    store = store_of(tmp_path, 1, 2)
    (tmp_path / "checkpoint_000002" / "state.json").write_text("{}")
    first = newest_start(store, "PPO")
    assert first is not None
    assert first.state == {"iteration": 1}
    assert newer_start(store, first, "PPO") is None


def test_the_newest_of_another_algorithm_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="was written by DQN, but PPO is to be trained"):
        newest_start(store_of(tmp_path, 1, algorithm="DQN"), "PPO")
