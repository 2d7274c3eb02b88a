from __future__ import annotations

import json
import logging
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reef.errors import EXIT_FAILED, CheckpointError, StorageError
from reef.run.algorithm import Algorithm
from reef.run.checkpoint import (
    CheckpointStore,
    find_checkpoint,
    read_checkpoint,
    read_metadata,
    write_checkpoint,
)
from reef.run.checkpoint import files as checkpoint_module
from reef.run.checkpoint.files import FORMAT_VERSION

STATE: dict[str, Any] = {
    "policies": {"a/b~c": {"weights": np.arange(6, dtype=np.float32).reshape(2, 3), "step": 7}},
    "rng": {"state": 2**127 + 1, "kind": "PCG64"},
    "columns": [np.array(3, np.int64), np.zeros((0, 4)), np.array([True, False]), None, 0.1, "text"],
    "strided": np.arange(6).reshape(2, 3).T,
}


def assert_same(left: Any, right: Any) -> None:
    assert type(left) is type(right)
    if isinstance(left, dict):
        assert left.keys() == right.keys()
        for key in left:
            assert_same(left[key], right[key])
    elif isinstance(left, list):
        assert len(left) == len(right)
        for one, other in zip(left, right, strict=True):
            assert_same(one, other)
    elif isinstance(left, np.ndarray):
        assert left.dtype == right.dtype
        assert left.shape == right.shape
        assert np.array_equal(left, right)
    else:
        assert left == right


def save(store: CheckpointStore, iteration: int, score: float | None = None) -> Path:
    return store.save({"x": np.full(1000, iteration)}, {"iteration": iteration}, score)


def names(store: CheckpointStore) -> list[int]:
    return [int(path.name[-6:]) for path in store.paths()]


def flip_byte(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def test_state_comes_back_bit_for_bit_and_writable(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "c", STATE, metadata={"algorithm": "PPO", "iteration": 3})
    state, metadata = read_checkpoint(tmp_path / "c")
    assert_same(state, STATE)
    state["strided"][0] = 1
    assert metadata["algorithm"] == "PPO"
    assert metadata["reef_version"]
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ((1, 2), "/a/0/b"),
        (np.float32(1), "/a/0/b"),
        (object(), "/a/0/b"),
        (np.array(["text"]), "/a/0/b"),
        ({1: 2}, "/a/0/b"),
        ({"$array": 1}, "/a/0/b"),
    ],
)
def test_values_that_do_not_fit_are_refused_with_their_path(tmp_path: Path, value: object, where: str) -> None:
    with pytest.raises(CheckpointError, match=where):
        write_checkpoint(tmp_path / "c", {"a": [{"b": value}]})
    assert not list(tmp_path.iterdir())


def test_writing_again_replaces_but_never_a_folder_that_is_no_checkpoint(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "c", {"x": 1})
    write_checkpoint(tmp_path / "c", {"x": 2})
    assert read_checkpoint(tmp_path / "c")[0] == {"x": 2}
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter").touch()
    with pytest.raises(StorageError, match="left alone"):
        write_checkpoint(tmp_path / "home", {"x": 1})
    assert {path.name for path in tmp_path.iterdir()} == {"c", "home"}


@pytest.mark.parametrize("name", ["arrays.safetensors", "state.json", "metadata.json"])
def test_each_kind_of_damage_is_named(tmp_path: Path, name: str) -> None:
    write_checkpoint(tmp_path / "c", STATE)
    file = tmp_path / "c" / name
    whole = file.read_bytes()
    flip_byte(file)
    with pytest.raises(CheckpointError, match=f"{name} is damaged"):
        read_checkpoint(tmp_path / "c")
    file.write_bytes(whole[:-1])
    with pytest.raises(CheckpointError, match=f"{name} is cut off"):
        read_checkpoint(tmp_path / "c")
    file.unlink()
    with pytest.raises(CheckpointError, match=f"{name} is missing"):
        read_checkpoint(tmp_path / "c")


def test_foreign_and_missing_checkpoints(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint at"):
        find_checkpoint(tmp_path / "nothing")
    with pytest.raises(CheckpointError, match=r"no manifest\.json"):
        find_checkpoint(tmp_path)
    (tmp_path / "manifest.json").write_text("[1]")
    with pytest.raises(CheckpointError, match="does not describe"):
        read_checkpoint(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format": "reef-checkpoint", "version": 99, "files": {}}')
    with pytest.raises(CheckpointError, match="format 99"):
        read_checkpoint(tmp_path)
    (tmp_path / "rllib_checkpoint.json").touch()
    with pytest.raises(CheckpointError, match="RLlib"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("runs", "newest"),
    [
        (["PPO_A_20260102-000000-ffffff", "DQN_B_20260301-000000-000000"], 1),
        (["trial_0001", "trial_0002"], 1),
        (["sweep_PPO_A_20260301-000000-ffffff/trial_0001", "PPO_A_20260102-000000-000000"], 0),
    ],
)
def test_the_folder_of_a_job_or_a_sweep_is_answered_with_the_newest_checkpoint_in_it(
    runs: list[str], newest: int, tmp_path: Path
) -> None:
    for run in runs:
        store = CheckpointStore(tmp_path / run)
        save(store, 4), save(store, 12)
    with pytest.raises(CheckpointError) as error:
        find_checkpoint(tmp_path)
    assert str(error.value).endswith(f" Use one, such as {tmp_path / runs[newest] / 'checkpoint_000012'}.")
    assert all(Path(run).name in str(error.value) for run in runs)


def test_find_takes_a_checkpoint_or_the_folder_of_a_run(tmp_path: Path) -> None:
    path = save(CheckpointStore(tmp_path), 4)
    assert find_checkpoint(path) == find_checkpoint(tmp_path) == path


def test_another_kind_is_refused(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "c", STATE)
    manifest = json.loads((tmp_path / "c" / "manifest.json").read_text())
    (tmp_path / "c" / "manifest.json").write_text(json.dumps(manifest | {"kind": "policy"}))
    with pytest.raises(CheckpointError, match="of kind 'policy', not 'algorithm'"):
        read_checkpoint(tmp_path / "c")


def test_store_keeps_the_best_and_always_the_newest(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=2, score_attribute="episode_reward_mean")
    for iteration, score in enumerate([1.0, 9.0, 5.0, None, 2.0], start=1):
        newest = save(store, iteration, score)
    assert names(store) == [2, 3, 5]
    assert store.best() == tmp_path / "checkpoint_000002"
    assert store.newest_valid() == newest
    assert read_metadata(newest)["score"] == 2.0


def test_store_with_smaller_is_better_and_by_age(tmp_path: Path) -> None:
    smallest = CheckpointStore(tmp_path / "min", keep=1, score_attribute="min-loss")
    newest = CheckpointStore(tmp_path / "last", keep=2)
    for iteration, score in enumerate([3.0, 1.0, 2.0], start=1):
        save(smallest, iteration, score)
        save(newest, iteration, iteration)
    assert names(smallest) == [2, 3]
    assert names(newest) == [2, 3]


def test_damaged_newest_is_passed_over_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = CheckpointStore(tmp_path)
    for iteration in (1, 2, 3):
        save(store, iteration)
    flip_byte(tmp_path / "checkpoint_000003" / "arrays.safetensors")
    (tmp_path / "checkpoint_000002" / "manifest.json").unlink()
    with caplog.at_level(logging.WARNING):
        assert store.newest_valid() == tmp_path / "checkpoint_000001"
    assert "checkpoint_000003/arrays.safetensors is damaged" in caplog.text
    assert "checkpoint_000002 has no manifest.json" in caplog.text


def test_one_of_another_format_is_not_passed_over(tmp_path: Path) -> None:
    """Training would begin from the start, and its checkpoints would replace those that another version can read."""
    store = CheckpointStore(tmp_path)
    for iteration in (1, 2):
        save(store, iteration)
    manifest = tmp_path / "checkpoint_000002" / "manifest.json"
    manifest.write_text(manifest.read_text().replace(f'"version": {FORMAT_VERSION}', '"version": 99'))
    with pytest.raises(CheckpointError, match="has checkpoint format 99.*use the version that wrote it"):
        store.newest_valid()


KILLED_SAVE = """
import os, signal, sys
import numpy as np
from reef.run.checkpoint import files as checkpoint
from reef.run.checkpoint import CheckpointStore
store = CheckpointStore(sys.argv[1])
def save(iteration): store.save({"x": np.full(1000, iteration)}, {"iteration": iteration})
save(1)
module, name, count = sys.argv[2], sys.argv[3], int(sys.argv[4])
owner = getattr(checkpoint, module, checkpoint)
original = getattr(owner, name)
def deadly(*args, **kwargs):
    global count
    count -= 1
    if count < 0: os.kill(os.getpid(), signal.SIGKILL)
    return original(*args, **kwargs)
setattr(owner, name, deadly)
save(int(sys.argv[5]))
"""


@pytest.mark.parametrize(
    ("owner", "function", "calls", "iteration"),
    [
        ("checkpoint", "_write_json", 1, 2),
        ("checkpoint", "_flush", 2, 2),
        ("Path", "rename", 0, 2),
        ("Path", "rename", 1, 1),
    ],
)
def test_kill_in_the_middle_of_a_save_leaves_the_older_one(
    tmp_path: Path, owner: str, function: str, calls: int, iteration: int
) -> None:
    command = [sys.executable, "-c", KILLED_SAVE, str(tmp_path), owner, function, str(calls), str(iteration)]
    child = subprocess.run(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, check=False)
    assert child.returncode == -signal.SIGKILL
    assert any(path.name.startswith(".") for path in tmp_path.iterdir())
    store = CheckpointStore(tmp_path)
    for place in (tmp_path, tmp_path / "checkpoint_000001"):  # also before anybody has cleaned up
        assert read_checkpoint(find_checkpoint(place))[0]["x"][0] == 1
    store.clean()
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint_000001"]
    newest = store.newest_valid()
    assert newest is not None
    assert read_checkpoint(newest)[0]["x"][0] == 1


def test_a_name_that_is_taken_hides_what_stepped_aside(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    path = save(store, 1)
    shutil.copytree(path, tmp_path / ".checkpoint_000001.old")
    (tmp_path / ".checkpoint_000001.old" / "manifest.json").unlink()  # its deletion had begun
    assert store.paths() == [path]
    assert find_checkpoint(path) == path
    shutil.rmtree(path)
    with pytest.raises(CheckpointError, match="no checkpoint at"):
        find_checkpoint(path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_checkpoint(tmp_path / "c", STATE)

    def refuse(file: Path) -> None:
        raise PermissionError(13, "Permission denied", str(file))

    monkeypatch.setattr(checkpoint_module, "_fingerprint", refuse)
    with pytest.raises(CheckpointError, match=r"cannot read .*c: .*Permission denied: .*arrays\.safetensors"):
        read_checkpoint(tmp_path / "c")


def test_full_disk_is_a_storage_error_and_leaves_nothing(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, before[1]))
    try:
        with pytest.raises(StorageError, match=r"cannot write the checkpoint .*c: .*too large") as caught:
            write_checkpoint(tmp_path / "c", {"x": np.zeros(2**20)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.exit_code == EXIT_FAILED, "another attempt may go on"
    assert not list(tmp_path.iterdir())


def test_failed_flush_or_rename_leaves_the_older_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_checkpoint(tmp_path / "c", {"x": 1})

    def refuse(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint_module, "_flush", refuse)
    with pytest.raises(StorageError, match="No space left"):
        write_checkpoint(tmp_path / "c", {"x": 2})
    assert read_checkpoint(tmp_path / "c")[0] == {"x": 1}
    shutil.rmtree(tmp_path / "c")
    assert not list(tmp_path.iterdir())


def test_what_stepped_aside_comes_back_when_the_new_one_cannot_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(tmp_path / "c", {"x": 1})
    rename = Path.rename

    def refuse(path: Path, target: Path) -> Path:
        if path.suffix == ".tmp":
            raise OSError(5, "Input/output error")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(StorageError, match="Input/output error"):
        write_checkpoint(tmp_path / "c", {"x": 2})
    assert read_checkpoint(tmp_path / "c")[0] == {"x": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


@pytest.mark.parametrize(
    ("function", "replaced"), [("load_file", 1), ("_read_json", 2), ("_fingerprint", 1), ("load_file", 99)]
)
def test_what_is_replaced_while_it_is_read_is_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, replaced: int
) -> None:
    """Without it the numbers of one checkpoint would come with the arrays of another."""
    original = getattr(checkpoint_module, function)
    times = 0

    def write(number: int) -> None:
        write_checkpoint(tmp_path / "c", {"number": number, "array": np.full(3, number)}, {"iteration": number})

    def read_late(file: Path) -> Any:
        nonlocal times
        if times < replaced:
            times += 1
            with monkeypatch.context() as undisturbed:
                undisturbed.setattr(checkpoint_module, function, original)
                write(times)
        return original(file)

    write(0)
    monkeypatch.setattr(checkpoint_module, function, read_late)
    if replaced == 99:
        with pytest.raises(CheckpointError, match="was replaced 10 times"):
            read_checkpoint(tmp_path / "c")
        return
    state, metadata = read_checkpoint(tmp_path / "c")
    assert (state["number"], state["array"][0], metadata["iteration"]) == (replaced,) * 3


@pytest.mark.parametrize("files", ["{}", "[]", '{"state.json": {"byt%s": 1}}'])
def test_a_damaged_manifest_is_found_and_the_one_before_is_used(tmp_path: Path, files: str) -> None:
    store = CheckpointStore(tmp_path)
    for iteration in (1, 2):
        store.save({"x": 1}, {"iteration": iteration})
    manifest = tmp_path / "checkpoint_000002" / "manifest.json"
    manifest.write_text(
        f'{{"format": "reef-checkpoint", "version": {FORMAT_VERSION}, "kind": "algorithm", "files": {files}}}'
    )
    assert store.newest_valid() == tmp_path / "checkpoint_000001"


def test_one_of_another_kind_is_passed_over(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    for iteration in (1, 2):
        store.save({"x": 1}, {"iteration": iteration})
    manifest = tmp_path / "checkpoint_000002" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"algorithm"', '"alforithm"'))  # one byte
    assert store.newest_valid() == tmp_path / "checkpoint_000001"


KILLED_ALGORITHM = """
import os, signal, sys
from pathlib import Path
from reef import PPOConfig
from reef.run.checkpoint import files as checkpoint
config = PPOConfig().environment("CartPole-v1").training(train_batch_size=32, sgd_minibatch_size=32, num_sgd_iter=1)
algorithm = config.training(model={"fcnet_hiddens": [64, 64]}).debugging(seed=1).build()
algorithm.train()
algorithm.save(sys.argv[1])
algorithm.train()
def die(*_): os.kill(os.getpid(), signal.SIGKILL)
def write_half(arrays, file):
    save_file(arrays, file)
    os.truncate(file, os.path.getsize(file) // 2)
    die()
def between_renames(path, target):
    if path.suffix == ".tmp": die()
    return rename(path, target)
save_file, rename = checkpoint.save_file, Path.rename
if sys.argv[2] == "half of the arrays": checkpoint.save_file = write_half
if sys.argv[2] == "between the renames": Path.rename = between_renames
algorithm.save(sys.argv[1])
"""


@pytest.mark.parametrize(
    ("moment", "left"),
    [("half of the arrays", {"c", ".c.tmp"}), ("between the renames", {".c.old", ".c.tmp"})],
)
def test_an_algorithm_killed_while_it_saves_is_restored_from_before(
    tmp_path: Path, moment: str, left: set[str]
) -> None:
    command = [sys.executable, "-c", KILLED_ALGORITHM, str(tmp_path / "c"), moment]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.run(command, env=environment, check=False, timeout=120)
    assert child.returncode == -signal.SIGKILL
    writer = rf"\.{re.escape(os.uname().nodename)}-\d+\.tmp$"
    assert {re.sub(writer, ".tmp", path.name) for path in tmp_path.iterdir()} == left
    with Algorithm.from_checkpoint(tmp_path / "c") as algorithm:
        assert algorithm.iteration == 1
        assert algorithm.train()["timesteps_total"] == 64
        algorithm.save(tmp_path / "c")
    assert [path.name for path in tmp_path.iterdir()] == ["c"]
    with Algorithm.from_checkpoint(tmp_path / "c") as algorithm:
        assert algorithm.iteration == 2


def test_a_save_clears_away_what_dead_processes_left_and_nothing_else(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    here = os.uname().nodename
    theirs = {f".c.{here}-{os.getppid()}.tmp", f".c.elsewhere-{ended.pid}.tmp", f".c.{ended.pid}.tmp", "c.tmp"}
    for name in (*theirs, f".c.{here}-{ended.pid}.tmp", f".d.{here}-{ended.pid}.tmp"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "arrays.safetensors").write_text("half")
    write_checkpoint(tmp_path / "c", {"x": 1})
    assert {path.name for path in tmp_path.iterdir()} == {"c", *theirs}


def test_a_folder_that_goes_while_it_is_looked_into_is_no_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "going" / "deeper").mkdir(parents=True)
    scandir = os.scandir

    def gone(path: Any) -> Any:
        if "going" in str(path):
            raise FileNotFoundError(2, "No such file or directory", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", gone)
    with pytest.raises(CheckpointError, match=r"has no manifest.json: its save was cut off, or it is no checkpoint"):
        checkpoint_module.read_algorithm(tmp_path)
