"""A real `reef run` that is asked to end by a real signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from s3_server import S3

from reef.run.checkpoint import find_checkpoint, read_checkpoint

JOB = """
apiVersion: reef.dev/v1
kind: RLTrainingJob
metadata: {name: endless}
spec:
  algorithm: PPO
  environment: {name: CartPole-v1}
  config: {train_batch_size: 256, sgd_minibatch_size: 128, num_sgd_iter: 1, num_envs_per_worker: 2, seed: 1}
  stop: {training_iteration: 1000000}
"""


def test_sigterm_before_the_first_iteration_is_said(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(JOB)
    command = [sys.executable, "-m", "reef", "run", str(job), "--storage-path", str(tmp_path / "results")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        deadline = time.monotonic() + 90
        while not has_handler(process.pid):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.terminate()
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 143, output
    assert "reef run: stopped by SIGTERM" in output
    assert not (tmp_path / "results").exists()


def has_handler(pid: int) -> bool:
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return bool(int(status["SigCgt"], 16) >> (signal.SIGTERM - 1) & 1)


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_the_run_with_a_checkpoint_and_its_code(sent: signal.Signals, code: int, tmp_path: Path) -> None:
    end_by(lambda process: os.kill(process.pid, sent), code, tmp_path)


def test_a_terminals_ctrl_c_reaches_all_processes_and_ends_the_run_the_same(tmp_path: Path) -> None:
    output = end_by(
        lambda process: os.killpg(process.pid, signal.SIGINT), 130, tmp_path, "--set=config.num_rollout_workers=1"
    )
    assert "Traceback" not in output


def end_by(end: Callable[[subprocess.Popen[str]], None], code: int, tmp_path: Path, *flags: str) -> str:
    """Run the job, end it once it has a result, and return what it printed; its code and checkpoint are looked at."""
    job = tmp_path / "job.yaml"
    job.write_text(JOB)
    storage = tmp_path / "results"
    command = [sys.executable, "-m", "reef", "run", str(job), "--storage-path", str(storage), *flags]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        deadline = time.monotonic() + 90
        while not list(storage.glob("endless/*/result.json")):
            assert time.monotonic() < deadline, "waited for the first result"
            assert process.poll() is None, process.stdout.read()
            time.sleep(0.05)
        end(process)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == code, output
    (folder,) = storage.glob("endless/*")
    _, metadata = read_checkpoint(find_checkpoint(folder))
    assert metadata["iteration"] >= 1
    return output


@pytest.mark.parametrize("away", [False, True])
def test_a_signal_ends_a_run_in_an_object_store_once_its_checkpoint_is_there(
    away: bool, s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    job = tmp_path / "job.yaml"
    job.write_text(JOB)
    command = [sys.executable, "-m", "reef", "run", str(job), "--storage-path", "s3://bucket/runs"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        deadline = time.monotonic() + 90
        while not list((tmp_path / "home").glob("reef_results/endless/*/result.json")):
            assert time.monotonic() < deadline, "waited for the first result"
            assert process.poll() is None, process.stdout.read()
            time.sleep(0.05)
        if away:
            s3.bucket.rename(s3.folder / "renamed")
        process.terminate()
        output, _ = process.communicate(timeout=90)
    if away:  # a checkpoint was written here, but that is not where it belongs
        assert process.returncode == 1, output
        assert "what was written last is not in s3://bucket/runs/endless/PPO_CartPole-v1_" in output
        assert "NoSuchBucket" in output
    else:
        assert process.returncode == 143, output
        assert read_checkpoint(find_checkpoint(next((s3.bucket / "runs/endless").glob("PPO_*"))))
    assert s3.environment["AWS_SECRET_ACCESS_KEY"] not in output
