"""What a run has written is in the store: newest first, manifest last, through outages, and after a kill."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from s3_server import S3

from reef.errors import CheckpointError, ReefError, StorageError, StoreUnavailableError
from reef.run.checkpoint import CheckpointStore
from reef.run.checkpoint.files import FORMAT_VERSION
from reef.run.prometheus import RunState
from reef.run.remote import mirror as mirror_module
from reef.run.remote.fetch import fetch_run
from reef.run.remote.mirror import Mirror
from reef.storage import object_store
from reef.storage.object_store import RemoteFolder

RUN = "s3://bucket/job/run_1"


@pytest.fixture(autouse=True)
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRST_DELAY_S", "LAST_DELAY_S", "DELAY_AT_END_S"):
        monkeypatch.setattr(mirror_module, name, 0.2)
    monkeypatch.setattr(object_store, "RETRIES", 1)


def store_in(folder: Path, keep: int | None = None, score: str = "training_iteration") -> CheckpointStore:
    return CheckpointStore(folder / "run_1", keep, score)


def save(store: CheckpointStore, iteration: int, score: float | None = None) -> Path:
    state = {"weights": np.full(1000, iteration)}
    life = str(time.monotonic_ns())  # as training again takes another time than the first
    path = store.save(state, {"iteration": iteration, "algorithm": "FAKE", "life": life}, score)
    (store.directory / "result.json").write_text(f"{iteration}\n")
    return path


def until(condition: Callable[[], Any], limit_s: float = 20.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def stored(s3: S3) -> list[int]:
    """Iterations of the checkpoints in the store that have a manifest."""
    return sorted(int(path.parent.name[11:17]) for path in (s3.bucket / "job/run_1").glob("*/manifest.json"))


def place_of(s3: S3, iteration: int) -> Path:
    """The folder of a checkpoint in the store, of which there is one; its name ends with the writer's."""
    (place,) = (s3.bucket / "job/run_1").glob(f"checkpoint_{iteration:06d}-????????")
    return place


def fetched(tmp_path: Path, name: str = "fresh") -> Path | None:
    """The checkpoint that another machine goes on from."""
    fetch_run(RemoteFolder("s3://bucket/job"), tmp_path / name, r"run_\d")
    return store_in(tmp_path / name).newest_valid()


def test_every_checkpoint_with_its_result_files_is_there_at_the_end(s3: S3, tmp_path: Path) -> None:
    store, run_state = store_in(tmp_path), RunState()
    with Mirror(RemoteFolder(RUN), store, run_state) as mirror:
        for iteration in (1, 2, 3):
            save(store, iteration)
            mirror.changed()
        (store.directory / ".hidden").touch()
        (store.directory / "videos").mkdir()
        (store.directory / "videos" / "episode.mp4").write_bytes(b"mp4")
        (store.directory / "learning_curve.png").write_bytes(b"png")  # written after the last checkpoint
    assert stored(s3) == [1, 2, 3]
    there = s3.bucket / "job/run_1"
    assert (there / "videos" / "episode.mp4").read_bytes() == b"mp4"
    for file in store.directory.rglob("*"):
        if file.parent.name != "videos" and file.is_file() and not file.name.startswith("."):
            folder = there if file.parent == store.directory else place_of(s3, int(file.parent.name[-6:]))
            assert (folder / file.name).read_bytes() == file.read_bytes()
    assert not (there / ".hidden").exists()
    progress = run_state.progress()
    assert progress["checkpoint"]["path"] == f"{RUN}/{place_of(s3, 3).name}"
    assert progress["checkpoint"]["iteration"] == 3
    assert "storageProblem" not in progress


def test_training_does_not_wait_for_uploads_and_a_checkpoint_under_way_stays(s3: S3, tmp_path: Path) -> None:
    store = store_in(tmp_path, keep=1)
    with Mirror(RemoteFolder(RUN), store) as mirror:
        until(lambda: "job/run_1/.owner" in s3.files())
        s3.slow(0.3)
        first = save(store, 1)
        mirror.changed()
        until(lambda: store.pinned == first)
        began = time.monotonic()
        for iteration in range(2, 7):
            save(store, iteration)
            mirror.changed()
        assert time.monotonic() - began < 1.0
        assert first.exists()
        until(lambda: stored(s3) == [1])  # though `keep` had no place for it any more
        s3.slow(0)
    assert stored(s3) == [6]
    assert {int(path.name[-6:]) for path in store.paths()} <= {1, 6}


def test_the_best_stay_also_those_that_this_machine_never_had(s3: S3, tmp_path: Path) -> None:
    first = store_in(tmp_path / "a", 2, "reward")
    with Mirror(RemoteFolder(RUN), first) as mirror:
        for iteration, reward in ((1, 9.0), (2, 1.0), (3, 5.0), (4, 2.0)):
            save(first, iteration, reward)
            mirror.changed()
    assert stored(s3) == [1, 3, 4]  # the two best and the newest
    assert fetched(tmp_path) == tmp_path / "fresh/run_1/checkpoint_000004"
    second = store_in(tmp_path / "fresh", 2, "reward")
    with Mirror(RemoteFolder(RUN), second) as mirror:
        save(second, 5, 7.0)
        mirror.changed()
    assert stored(s3) == [1, 5]
    assert not any("checkpoint_000003" in file or "checkpoint_000004" in file for file in s3.files())


def test_one_of_another_format_is_not_passed_over(s3: S3, tmp_path: Path) -> None:
    """Else training would begin anew, and remove it."""
    store = store_in(tmp_path)
    with Mirror(RemoteFolder(RUN), store) as mirror:
        save(store, 1)
        mirror.changed()
    manifest = place_of(s3, 1) / "manifest.json"
    manifest.write_text(manifest.read_text().replace(f'"version": {FORMAT_VERSION}', '"version": 99'))
    with pytest.raises(CheckpointError, match=f"{RUN}/checkpoint_000001.*has checkpoint format 99"):
        fetched(tmp_path)


@pytest.mark.parametrize("damage", ["flipped", "cut", "no manifest", "bad manifest", "missing"])
def test_a_damaged_newest_one_is_passed_over_and_then_replaced(
    damage: str, s3: S3, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = store_in(tmp_path)
    with Mirror(RemoteFolder(RUN), store) as mirror:
        for iteration in (1, 2):
            save(store, iteration)
            mirror.changed()
    newest = place_of(s3, 2)
    arrays = newest / "arrays.safetensors"
    content = bytearray(arrays.read_bytes())
    content[-3] ^= 1
    match damage:
        case "flipped":
            arrays.write_bytes(content)
        case "cut":
            arrays.write_bytes(content[:-5])
        case "no manifest":
            (newest / "manifest.json").unlink()
        case "bad manifest":
            (newest / "manifest.json").write_text('{"format": "reef-ch')
        case "missing":
            (newest / "state.json").unlink()
    with caplog.at_level(logging.WARNING):
        assert fetched(tmp_path) == tmp_path / "fresh/run_1/checkpoint_000001"
    assert "skipping a checkpoint" in caplog.text
    assert f"{RUN}/checkpoint_000002" in caplog.text
    assert [path.name for path in store_in(tmp_path / "fresh").paths()] == ["checkpoint_000001"]

    again = store_in(tmp_path / "fresh")
    with Mirror(RemoteFolder(RUN), again) as mirror:
        save(again, 2)
        mirror.changed()
    assert fetched(tmp_path, "third") == tmp_path / "third/run_1/checkpoint_000002"


def test_what_this_machine_has_and_the_store_lacks_is_not_fetched_over(s3: S3, tmp_path: Path) -> None:
    store = store_in(tmp_path)
    with Mirror(RemoteFolder(RUN), store) as mirror:
        save(store, 1)
        mirror.changed()
    newer = save(store, 2)
    fetch_run(RemoteFolder("s3://bucket/job"), tmp_path, r"run_\d")
    assert store.newest_valid() == newer
    assert (store.directory / "result.json").read_text() == "2\n"
    with Mirror(RemoteFolder(RUN), store):
        pass
    assert stored(s3) == [1, 2]


def test_a_store_that_goes_away_and_comes_back_gets_everything(
    s3: S3, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, run_state = store_in(tmp_path, keep=2), RunState()
    with Mirror(RemoteFolder(RUN), store, run_state) as mirror:
        save(store, 1)
        mirror.changed()
        # The file is there before the answer to its upload, which the end of the store may cut off.
        until(lambda: "checkpoint" in run_state.progress())
        s3.stop()
        for iteration in (2, 3, 4):
            save(store, iteration)
            mirror.changed()
        until(lambda: "cannot" in run_state.progress().get("storageProblem", ""))
        assert run_state.progress()["checkpoint"]["iteration"] == 1, "what is in the store"
        assert [family.samples[0].value for family in run_state.collect() if "failing" in family.name] == [1]
        s3.start()
        until(lambda: stored(s3) == [3, 4])
        until(lambda: not run_state.storage_problem)
    assert run_state.progress()["checkpoint"]["iteration"] == 4
    assert "training goes on without the store" in caplog.text
    assert "answers again" in caplog.text


def test_an_end_without_the_store_is_an_error_that_says_where_the_work_is(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror_module, "END_S", 1.0)
    store = store_in(tmp_path)
    with pytest.raises(StoreUnavailableError) as caught, Mirror(RemoteFolder(RUN), store) as mirror:
        until(lambda: "job/run_1/.owner" in s3.files())
        s3.stop()
        save(store, 1)
        mirror.changed()
    assert caught.value.exit_code == 1
    assert RUN in str(caught.value)
    assert str(store.directory) in str(caught.value)
    assert "--resume" in str(caught.value)


def test_an_end_that_the_store_refuses_is_not_waited_for(s3: S3, tmp_path: Path) -> None:
    store = store_in(tmp_path)
    began = time.monotonic()
    with pytest.raises(StoreUnavailableError, match="NoSuchBucket"), Mirror(RemoteFolder(RUN), store) as mirror:
        until(lambda: "job/run_1/.owner" in s3.files())
        s3.bucket.rename(s3.folder / "renamed")
        save(store, 1)
        mirror.changed()
    assert time.monotonic() - began < 10


def test_an_error_of_the_run_is_not_replaced_and_the_last_checkpoint_is_uploaded(s3: S3, tmp_path: Path) -> None:
    store = store_in(tmp_path)
    with pytest.raises(ReefError, match="of the run"), Mirror(RemoteFolder(RUN), store) as mirror:
        save(store, 1)
        mirror.changed()
        raise ReefError("of the run")
    assert stored(s3) == [1]
    began = time.monotonic()
    s3.slow(5)
    with pytest.raises(KeyboardInterrupt), Mirror(RemoteFolder(RUN), store) as mirror:
        save(store, 2)
        mirror.changed()
        raise KeyboardInterrupt
    assert time.monotonic() - began < 4.0, "a second Ctrl-C ends at once"


def test_a_run_that_another_process_has_taken_over_ends(s3: S3, tmp_path: Path) -> None:
    old, new = store_in(tmp_path / "old"), store_in(tmp_path / "new")
    began = time.monotonic()
    with pytest.raises(ReefError, match="taken over"), Mirror(RemoteFolder(RUN), old) as lost:
        save(old, 1)
        lost.changed()
        until(lambda: stored(s3) == [1])
        with Mirror(RemoteFolder(RUN), new) as mirror:
            save(new, 2)
            mirror.changed()
        save(old, 3)
        while time.monotonic() < began + 20:
            lost.changed()
            time.sleep(0.05)
    assert stored(s3) == [1, 2]


def test_a_slow_upload_of_a_replaced_process_does_not_touch_what_its_successor_writes(s3: S3, tmp_path: Path) -> None:
    old, new = store_in(tmp_path / "old"), store_in(tmp_path / "new")
    waiting = s3.folder / ".waiting"
    with pytest.raises(ReefError, match="taken over"), Mirror(RemoteFolder(RUN), old) as lost:
        until(lambda: "job/run_1/.owner" in s3.files())
        s3.slow(4)
        save(old, 1)
        lost.changed()
        until(lambda: waiting.exists() and waiting.read_text().endswith("arrays.safetensors"))  # it has looked before
        s3.slow(0)
        with Mirror(RemoteFolder(RUN), new) as mirror:
            successor = save(new, 1)
            mirror.changed()
        until(lambda: isinstance(lost._problem, ReefError))
        lost.changed()
    (whole,) = (s3.bucket / "job/run_1").glob("*/manifest.json")
    for name in ("arrays.safetensors", "state.json", "metadata.json", "manifest.json"):
        assert (whole.parent / name).read_bytes() == (successor / name).read_bytes()
    (late,) = (path for path in (s3.bucket / "job/run_1").glob("checkpoint_000001-*") if path != whole.parent)
    assert [path.name for path in late.iterdir()] == ["arrays.safetensors"], "what it wrote before it looked again"
    assert fetched(tmp_path) == tmp_path / "fresh/run_1/checkpoint_000001"


def test_of_two_writers_the_owner_is_gone_on_from(s3: S3, tmp_path: Path) -> None:
    """Though the one before it had got further when it noticed."""
    for writer, iterations in (("old", (1, 2, 3)), ("new", (1, 2))):
        store = store_in(tmp_path / writer)
        with Mirror(RemoteFolder(RUN), store) as mirror:
            for iteration in iterations:
                save(store, iteration)
                mirror.changed()
    assert fetched(tmp_path) == tmp_path / "fresh/run_1/checkpoint_000002"
    newest = tmp_path / "new/run_1/checkpoint_000002/manifest.json"
    assert (tmp_path / "fresh/run_1/checkpoint_000002/manifest.json").read_bytes() == newest.read_bytes()


UPLOADER = """
import sys, numpy as np
from pathlib import Path
from reef.run.checkpoint import CheckpointStore
from reef.run.remote.mirror import Mirror
from reef.storage.object_store import RemoteFolder
store = CheckpointStore(Path(sys.argv[1]) / "run_1", keep=1)
with Mirror(RemoteFolder("s3://bucket/job/run_1"), store) as mirror:
    for iteration in range(1, 1000):
        store.save({"weights": np.full(1000, iteration)}, {"iteration": iteration, "algorithm": "FAKE"})
        mirror.changed()
        print(iteration, flush=True)
        sys.stdin.readline()
"""


@pytest.fixture
def uploader(s3: S3, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that writes a checkpoint for every line that it reads, and uploads it."""
    command = [sys.executable, "-c", UPLOADER, str(tmp_path / "first")]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    yield process
    process.kill()
    process.wait(10)
    for stream in (process.stdin, process.stdout):
        assert stream is not None
        stream.close()


@pytest.mark.parametrize("files", range(4))
def test_a_kill_during_an_upload_leaves_the_older_one(
    files: int, s3: S3, tmp_path: Path, uploader: subprocess.Popen[str]
) -> None:
    assert uploader.stdin is not None
    until(lambda: stored(s3) == [1])
    s3.slow(0.3)
    uploader.stdin.write("\n")
    uploader.stdin.flush()
    run = s3.bucket / "job/run_1"
    until(lambda: len(list(run.glob("checkpoint_000002-*/[!.]*"))) >= files)
    os.kill(uploader.pid, signal.SIGKILL)
    uploader.wait(10)
    time.sleep(0.5)  # what the server had received
    s3.slow(0)
    path = fetched(tmp_path)
    assert path is not None
    expected = 2 if list(run.glob("checkpoint_000002-*/manifest.json")) else 1
    assert path.name == f"checkpoint_00000{expected}"
    assert files == 3 or expected == 1


def test_no_thread_is_left_and_nothing_is_written_for_a_run_that_wrote_nothing(s3: S3, tmp_path: Path) -> None:
    before = set(threading.enumerate())  # an upload that another test has cut off may still be under way
    with Mirror(RemoteFolder(RUN), store_in(tmp_path)):
        pass
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name == "uploads"]
    assert s3.files() == ["job/run_1/.owner"]


def test_an_older_run_in_the_store_is_left_alone(s3: S3, tmp_path: Path) -> None:
    store = store_in(tmp_path)
    with Mirror(RemoteFolder(RUN), store) as mirror:
        save(store, 1)
        mirror.changed()
    (tmp_path / "fresh/run_2").mkdir(parents=True)
    assert fetched(tmp_path) is None
    assert [path.name for path in (tmp_path / "fresh").iterdir()] == ["run_2"]


def test_a_store_that_cannot_be_read_is_no_reason_to_begin_anew(s3: S3, tmp_path: Path) -> None:
    s3.stop()
    with pytest.raises(StorageError):
        fetched(tmp_path)


def test_metadata_that_is_damaged_does_not_keep_others_from_the_store(s3: S3, tmp_path: Path) -> None:
    store = store_in(tmp_path, keep=2)
    with Mirror(RemoteFolder(RUN), store) as mirror:
        save(store, 1)
        mirror.changed()
    metadata = place_of(s3, 1) / "metadata.json"
    metadata.write_text("[]".ljust(metadata.stat().st_size))
    fresh = store_in(tmp_path / "fresh", keep=2)
    save(fresh, 2)
    with Mirror(RemoteFolder(RUN), fresh):
        pass
    assert stored(s3) == [1, 2]


@pytest.mark.parametrize(
    ("file", "content"),
    [("manifest.json", "null"), ("manifest.json", '{"files": {"/etc/hostname": {}}}'), ("metadata.json", "[]")],
)
def test_what_is_damaged_here_is_not_uploaded_and_keeps_nothing_from_the_store(
    file: str, content: str, s3: S3, tmp_path: Path
) -> None:
    store = store_in(tmp_path)
    for iteration in (1, 2):
        save(store, iteration)
    (store.directory / "checkpoint_000002" / file).write_text(content)
    with Mirror(RemoteFolder(RUN), store):
        pass
    assert stored(s3) == [1]
