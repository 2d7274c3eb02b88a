"""The processes of a run on this machine, and what they are doing: with psutil and py-spy, of the extra `debug`."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reef.errors import ConfigError, ReefError
from reef.run.process.identity import OWNER, owner_of

Process = Any  # of psutil, which is imported where it is used
INSTALL = "pip install 'reef[debug]'."
REFUSED = re.compile("permission denied|operation not permitted", re.IGNORECASE)
CLOCKS_S = 2.0  # by which the times of a file and of a process may differ
SERVICES = re.compile(r"/ray/(_private|dashboard|autoscaler)/|ray::(IDLE|DashboardAgent|RuntimeEnvAgent)")
DRIVER_LOG = re.compile(r"(?P<logs>.*)/python-core-driver-(?P<job>[0-9a-f]{8})[0-9a-f]*_[0-9]+\.log")
NOT_ALLOWED = (
    "py-spy may not look into process {pid}: {problem} It needs the right to trace processes (ptrace): run it as root "
    "or with sudo, start a container with --cap-add SYS_PTRACE, or set kernel.yama.ptrace_scope to 0. The pods of a "
    "job do not have it."
)
NOT_READ = "py-spy cannot read the stacks of process {pid}: {problem} Try again: it may be starting or ending."


def driver_of(run: str) -> Process:
    """The process that trains a run, which is given by its folder or as that process's number.

    Raises:
        ConfigError: it is no such folder, nothing trains there any more, or the process is on another machine.
    """
    if run.isdecimal():
        found = _existing(int(run))
        if found is None:
            raise ConfigError(f"{run}: no process on this machine has this number.")
        return found
    folder = Path(run).expanduser()
    try:
        owner = owner_of(folder)
    except OSError as error:
        raise ConfigError(
            f"{run}: there is no {OWNER} in it, which a run writes with its first result. Give the folder of a run, or "
            "the number of its process."
        ) from error
    if owner.host != socket.gethostname():
        raise ConfigError(
            f"{run}: it trains on {owner.host}, and this is {socket.gethostname()}. Run the command there."
        )
    found = _existing(owner.pid)
    if found is None or found.create_time() > owner.since + CLOCKS_S:  # the number is another program's by now
        raise ConfigError(f"{run} is not training: its process {owner.pid} has ended.")
    return found


def processes_of(driver: Process) -> list[Process]:
    """The driver and the processes on this machine that work for it, without Ray's own.

    Where it joined a cluster, these are no children of it: they write into the same folder of logs, each into a file
    that names the job, or none where Ray started it before there was one.

    Raises ConfigError for a driver that has ended.
    """
    try:
        below = driver.children(recursive=True)
    except _psutil().Error as error:
        raise ConfigError(f"process {driver.pid} has ended, or may not be looked at: {error}.") from error
    if not any(_is_named(each, "raylet") for each in below):
        for found in filter(None, map(DRIVER_LOG.fullmatch, _open_files(driver))):
            logs, job = found.groups()
            own = re.compile(rf"{re.escape(logs)}/worker-[0-9a-f]+-({job}|f{{8}})-[0-9]+\.out")
            below += [each for each in _workers() if any(map(own.fullmatch, _open_files(each)))]
    return [driver, *(each for each in below if _is_named(each, "python") and not SERVICES.search(title_of(each)))]


def stack_of(process: Process) -> str | None:
    """The stack of each thread of a Python process; None where it has ended.

    Raises:
        ReefError: py-spy may not look into it, or fails.
        ConfigError: py-spy is not installed.
    """
    command = [py_spy(), "dump", "--pid", str(process.pid)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 (no shell)
    if ended.returncode == 0:
        return ended.stdout
    if _has_ended(process):
        return None
    raise _failure(process, ended.stderr)


def watch(process: Process) -> int:
    """Show in which functions a process and those below it spend their time, until Ctrl-C; returns the exit code."""
    command = [py_spy(), "top", "--subprocesses", "--pid", str(process.pid)]
    ended = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)  # noqa: S603 (no shell)
    if ended.returncode and not _has_ended(process):
        raise _failure(process, ended.stderr)
    return 0


def _failure(process: Process, said: str) -> ReefError:
    """Why py-spy failed, by what it said."""
    text = NOT_ALLOWED if REFUSED.search(said) else NOT_READ
    return ReefError(text.format(pid=process.pid, problem=_in_one_line(said.partition("Stack backtrace:")[0])))


def py_spy() -> str:
    """The path of py-spy; ConfigError where it is not installed."""
    beside = Path(sys.executable).with_name("py-spy")
    found = str(beside) if beside.is_file() else shutil.which("py-spy")
    if found is None:
        raise ConfigError(f"py-spy is not installed: {INSTALL}")
    return found


def _psutil() -> Any:
    try:
        import psutil  # type: ignore[import-untyped]
    except ImportError as error:
        raise ConfigError(f"psutil is not installed: {INSTALL}") from error
    return psutil


def _existing(pid: int) -> Process | None:
    known = _psutil()
    try:
        found = known.Process(pid)
        return None if _has_ended(found) else found
    except (known.Error, ValueError):
        return None


def _has_ended(process: Process) -> bool:
    known = _psutil()
    try:
        return not process.is_running() or process.status() == known.STATUS_ZOMBIE
    except known.Error:
        return True


def _workers() -> Iterator[Process]:
    return (each for each in _psutil().process_iter() if title_of(each).startswith("ray::"))


def _open_files(process: Process) -> list[str]:
    try:
        return [file.path for file in process.open_files()]
    except _psutil().Error:
        return []


def _is_named(process: Process, name: str) -> bool:
    """Whether its program is called so; False where it has ended, or may not be looked at."""
    known = _psutil()
    try:
        return Path(process.exe()).name.startswith(name)
    except known.Error:
        return False


def title_of(process: Process) -> str:
    """Its command line, or what it calls itself, such as "ray::RolloutWorker"; empty where it has ended."""
    known = _psutil()
    try:
        return " ".join(process.cmdline()).strip()
    except known.Error:
        return ""


def _in_one_line(text: str) -> str:
    return " ".join(text.split()) or "it gave no reason."
