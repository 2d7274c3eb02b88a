"""What else may lie in the folder of a run, and is left alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reef.run.checkpoint import CheckpointStore, find_checkpoint, read_checkpoint, write_checkpoint


def save(store: CheckpointStore, iteration: int) -> Path:
    return store.save({"x": np.full(10, iteration)}, {"iteration": iteration})


@pytest.mark.parametrize("ending", ["²", "٣", "", "x", "9" * 200])
def test_folders_that_are_no_checkpoints_are_ignored(tmp_path: Path, ending: str) -> None:
    name = f"checkpoint_{ending}"
    store = CheckpointStore(tmp_path, keep=1)
    save(store, 1)
    (tmp_path / name).mkdir()
    (tmp_path / f".{name}.old").mkdir()
    (tmp_path / "checkpoint_000099").write_text("a file")
    assert store.newest_valid() == tmp_path / "checkpoint_000001"
    newest = save(store, 2)
    assert store.paths() == [newest]
    assert (tmp_path / name).is_dir()
    assert (tmp_path / f".{name}.old").is_dir()
    assert (tmp_path / "checkpoint_000099").is_file()


def test_what_a_link_leads_to_is_never_deleted(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    for iteration in (1, 3):
        write_checkpoint(elsewhere / f"c{iteration}", {"x": iteration}, {"iteration": iteration})
    store = CheckpointStore(tmp_path / "run", keep=1)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoint_000001").symlink_to(elsewhere / "c1")
    (tmp_path / "run" / "checkpoint_000003").symlink_to(elsewhere / "c3")
    save(store, 2)
    save(store, 3)
    save(store, 4)
    assert [path.name for path in store.paths()] == ["checkpoint_000001", "checkpoint_000004"]
    for iteration in (1, 3):
        assert read_checkpoint(elsewhere / f"c{iteration}")[0] == {"x": iteration}
    assert read_checkpoint(tmp_path / "run" / "checkpoint_000001")[0] == {"x": 1}


def test_a_run_that_was_downloaded_from_an_object_store_is_found(tmp_path: Path) -> None:
    """There the names of checkpoints end with who wrote them."""
    older = save(CheckpointStore(tmp_path), 9).rename(tmp_path / "checkpoint_000009-0123abcd")
    newer = save(CheckpointStore(tmp_path), 10).rename(tmp_path / "checkpoint_000010-3f9a01bc")
    assert find_checkpoint(tmp_path) == newer
    assert CheckpointStore(tmp_path).paths() == [older, newer]
