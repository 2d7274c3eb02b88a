"""Two processes and one folder."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reef.errors import EXIT_FAILED, ReefError, StorageError
from reef.run.process.identity import OWNER, Claim

JOB = """
apiVersion: reef.dev/v1
kind: RLTrainingJob
metadata: {name: twice}
spec:
  algorithm: PPO
  environment: {name: CartPole-v1}
  config: {train_batch_size: 1024, sgd_minibatch_size: 1024, num_sgd_iter: 1, num_envs_per_worker: 2, seed: 1}
  stop: {training_iteration: 1000000}
  checkpoint: {frequency: 1, keep: 1000} # or the rest of one is removed later
"""


def test_whoever_came_last_writes(tmp_path: Path) -> None:
    first, second = Claim(), Claim()
    with first.held(tmp_path / "run"):
        assert (tmp_path / "run" / OWNER).exists(), "a new folder is claimed by the first who writes"
    second.take(tmp_path / "run")
    with second.held(tmp_path / "run"):
        pass
    with pytest.raises(ReefError, match="was taken over by process") as caught, first.held(tmp_path / "run"):
        raise AssertionError("not to be reached")
    assert caught.value.exit_code == EXIT_FAILED, "another attempt may go on"
    assert [path.name for path in (tmp_path / "run").iterdir()] == [OWNER]


def test_a_write_that_fails_as_the_folder_is_taken_over_is_no_wrong_job(tmp_path: Path) -> None:
    first = Claim()
    with pytest.raises(StorageError, match="disk"), first.held(tmp_path):
        raise StorageError("the disk is full")
    with pytest.raises(ReefError, match="taken over"), first.held(tmp_path):
        Claim().take(tmp_path)
        raise StorageError("what was half written is gone")


@pytest.mark.parametrize("fault", ["folder", "owner"])
def test_a_folder_that_is_lost_is_a_fault(tmp_path: Path, fault: str) -> None:
    claim, folder = Claim(), tmp_path / "run"
    claim.take(folder)
    shutil.rmtree(folder)
    folder.touch() if fault == "folder" else (folder / OWNER).mkdir(parents=True)
    with pytest.raises(StorageError, match=str(folder)) as caught, claim.held(folder):
        raise AssertionError("not to be reached")
    assert caught.value.exit_code == EXIT_FAILED, "another attempt may go on"


@pytest.mark.timeout(240)
def test_a_process_that_wakes_up_beside_its_successor_leaves_everything_alone(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    command = [sys.executable, "-m", "reef", "run", str(tmp_path / "job.yaml"), "--storage-path", str(tmp_path / "r")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as older:
        try:
            deadline = time.monotonic() + 120
            while not list(tmp_path.glob("r/twice/*/checkpoint_000003")):
                assert time.monotonic() < deadline, "waited for a checkpoint"
                time.sleep(0.02)
            os.kill(older.pid, signal.SIGSTOP)
            (folder,) = tmp_path.glob("r/twice/*")
            last = max(int(path.name.removeprefix("checkpoint_")) for path in folder.glob("checkpoint_*"))
            more = ["--resume", "--set", f"stop.training_iteration={last + 3}"]
            newer = subprocess.run([*command, *more], capture_output=True, text=True, timeout=120, check=False)
            assert newer.returncode == 0, newer.stderr
            before = contents(folder)
            assert f"checkpoint_{last + 3:06d}" in before
            os.kill(older.pid, signal.SIGCONT)
            output, _ = older.communicate(timeout=60)
        finally:
            older.kill()
    assert older.returncode == EXIT_FAILED, output
    assert "was taken over by process" in output
    assert contents(folder) == before


def contents(folder: Path) -> dict[str, tuple[int, int, int]]:
    """What would change when somebody wrote, by path."""
    found = {path: path.stat() for path in folder.rglob("*") if "tfevents" not in path.name}
    return {str(path.relative_to(folder)): (s.st_ino, s.st_size, s.st_mtime_ns) for path, s in found.items()}
