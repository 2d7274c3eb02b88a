"""`reef stack` and `reef top`: reef.run.process.running and reef.cli.looking.stack."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from reef.cli.looking import stack
from reef.cli.main import main
from reef.errors import ConfigError
from reef.run.process import running
from reef.run.process.identity import OWNER, Claim, owner_of
from reef.run.process.running import driver_of, processes_of

WORKER = "import time\ndef work_of_the_worker():\n    print(flush=True)\n    time.sleep(100)\nwork_of_the_worker()\n"
DRIVER = f"""
import subprocess, sys, time
from pathlib import Path
from reef.run.process.identity import Claim
def drive_it_all():
    worker = subprocess.Popen([sys.executable, "-c", {WORKER!r}], stdout=subprocess.PIPE)
    worker.stdout.readline()
    subprocess.Popen(["sleep", "100"])
    subprocess.Popen([sys.executable, "-c", {WORKER!r}, "/ray/_private/log_monitor.py"])
    Claim().take(Path(sys.argv[1]))
    time.sleep(100)
drive_it_all()
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    """The folder of a process with three others below it, of which one is a worker."""
    folder = tmp_path / "run"
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(folder)], start_new_session=True)
    while not (folder / OWNER).exists():
        time.sleep(0.02)
    yield folder
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()


def test_driver_and_worker_show_what_they_do(run: Path, capsys: pytest.CaptureFixture[str]):
    code = main(["stack", str(run)])
    shown = capsys.readouterr()
    if code and running.REFUSED.search(shown.err):  # nobody may trace processes here
        assert "SYS_PTRACE" in shown.err
        return
    assert code == 0, shown.err
    assert shown.out.count("driver: Process") == shown.out.count("worker: Process") == 1
    assert "drive_it_all" in shown.out.partition("worker:")[0]
    assert "work_of_the_worker" in shown.out.partition("worker:")[2]


def test_services_of_ray_and_other_programs_are_left_out(run: Path):
    driver = driver_of(str(run))
    assert driver.pid == owner_of(run).pid
    assert driver_of(str(driver.pid)) == driver
    assert len(driver.children()) == 3
    first, worker = processes_of(driver)
    assert first == driver
    assert worker.ppid() == driver.pid
    assert "/ray/" not in " ".join(worker.cmdline())


def test_workers_of_a_cluster_that_was_joined_are_found_by_its_logs(tmp_path: Path):
    logs = tmp_path / "logs"
    logs.mkdir()
    named = "import sys, time; file = open(sys.argv[1], 'w'); print(flush=True); time.sleep(100)"
    names = [
        "python-core-driver-01000000ffff_1.log",
        "worker-ab-01000000-1.out",
        "worker-cd-ffffffff-2.out",
        "worker-ef-02000000-3.out",
    ]
    started = []
    for name in names:
        command = [sys.executable, "-c", named, str(logs / name)]
        started.append(subprocess.Popen(["ray::Worker", *command[1:]], executable=sys.executable, stdout=-1))
    try:
        for process in started:
            process.stdout.readline()  # the file is open
        found = processes_of(driver_of(str(started[0].pid)))
        assert {process.pid for process in found} == {process.pid for process in started[:3]}
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_what_does_not_run_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["stack", str(tmp_path)]) == 2
    assert f"{tmp_path}: there is no {OWNER} in it" in capsys.readouterr().err
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    (tmp_path / OWNER).write_text(f"process {ended.pid} on {os.uname().nodename} (0)")
    assert main(["top", str(tmp_path)]) == 2
    assert f"{tmp_path} is not training: its process {ended.pid} has ended." in capsys.readouterr().err
    with pytest.raises(ConfigError, match="no process on this machine has this number"):
        driver_of(str(ended.pid))
    (tmp_path / OWNER).write_text(f"process {os.getpid()} on elsewhere (0)")
    with pytest.raises(ConfigError, match="it trains on elsewhere, and this is"):
        driver_of(str(tmp_path))
    for content in (b"?", b"\xff\xfe"):
        (tmp_path / OWNER).write_bytes(content)
        with pytest.raises(ConfigError, match="or the number of its process"):
            driver_of(str(tmp_path))


def test_a_number_that_is_another_program_by_now_is_not_trusted(tmp_path: Path):
    Claim().take(tmp_path)
    assert driver_of(str(tmp_path)).pid == os.getpid()
    before = psutil.Process().create_time() - 60.0
    os.utime(tmp_path / OWNER, (before, before))
    with pytest.raises(ConfigError, match="is not training: its process"):
        driver_of(str(tmp_path))


def test_a_driver_that_ends_meanwhile_is_said():
    ending = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    driver = driver_of(str(ending.pid))
    ending.communicate(b"\n")
    with pytest.raises(ConfigError, match=f"process {ending.pid} has ended"):
        processes_of(driver)


def py_spy_is(script: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have lines of a shell stand in for py-spy."""
    (folder / "py-spy").write_text(f"#!/bin/sh\n{script}")
    (folder / "py-spy").chmod(0o755)
    monkeypatch.setattr(running, "py_spy", lambda: str(folder / "py-spy"))


@pytest.mark.parametrize("command", ["stack", "top"])
def test_other_failures_of_py_spy_are_no_missing_right(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    py_spy_is("echo Failed to find a version. >&2\necho Stack backtrace: 0 anyhow >&2\nexit 1\n", tmp_path, monkeypatch)
    assert main([command, str(os.getpid())]) == 1
    message = capsys.readouterr().err
    assert f"cannot read the stacks of process {os.getpid()}: Failed to find a version. Try again" in message
    assert "ptrace" not in message
    assert "anyhow" not in message


def test_a_process_that_ended_while_py_spy_looked_has_no_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    py_spy_is("exit 1\n", tmp_path, monkeypatch)
    ending = subprocess.Popen(["sleep", "100"])
    process = driver_of(str(ending.pid))
    ending.kill()
    while process.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    assert running.stack_of(process) is None
    ending.wait()


@pytest.mark.parametrize("command", ["stack", "top"])
def test_a_process_that_may_not_be_traced(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    py_spy_is("echo Operation not permitted >&2\nexit 1\n", tmp_path, monkeypatch)
    assert main([command, str(os.getpid())]) == 1
    message = capsys.readouterr().err
    assert f"may not look into process {os.getpid()}: Operation not permitted It needs the right" in message
    assert "--cap-add SYS_PTRACE" in message


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(running.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"py-spy is not installed: pip install 'reef\[debug\]'"):
        running.py_spy()
    monkeypatch.setitem(sys.modules, "psutil", None)
    with pytest.raises(ConfigError, match=r"psutil is not installed: pip install 'reef\[debug\]'"):
        driver_of("1")


def test_top_watches_the_driver_and_those_below(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    seen = tmp_path / "seen"
    watching = tmp_path / "py-spy"
    watching.write_text(f'#!/bin/sh\necho "$@" > {seen}\n')
    watching.chmod(0o755)
    monkeypatch.setattr(running, "py_spy", lambda: str(watching))
    assert main(["top", str(os.getpid())]) == 0
    assert seen.read_text() == f"top --subprocesses --pid {os.getpid()}\n"
    assert stack.RUN.startswith("folder of a run")
