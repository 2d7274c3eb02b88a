"""Runs one script to its JSON line, with a time limit, and watches the memory of its whole process tree."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 1e6


class ScriptError(Exception):
    """A script failed, ran past its limit or printed no JSON line."""


def run_script(python: Path, module: str, args: dict[str, Any], limit_s: float) -> dict[str, Any]:
    """Run `python -m module ARGS` and return its JSON answer.

    `args["threads"]` limits the threads of its mathematical libraries; without it their own defaults decide. Without
    `args["gpus"]` it sees no GPU.
    Adds `first_iteration_s` (seconds from process start to the end of the first iteration), `wall_s`, `peak_mb`
    (largest sum of the resident memory of all its processes, MB of 10^6 bytes) and `peak_processes`.

    Raises:
        ScriptError: it failed, or printed no answer within `limit_s` seconds.
    """
    command = [str(python), "-m", module, json.dumps(args)]
    with tempfile.TemporaryFile() as errors:
        started_at = time.time()
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment(args.get("threads"), bool(args.get("gpus"))),
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
        memory = MemoryWatch(process.pid)
        try:
            output, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise ScriptError(f"{module} {args} ran past its limit of {limit_s:.0f} s") from None
        finally:
            memory.stop()
            _kill_tree(process)
        errors.seek(0)
        answer = _answer(output.decode())
        if process.returncode != 0 or answer is None:
            tail = errors.read().decode(errors="replace")[-3000:]
            raise ScriptError(f"{module} {args} ended with code {process.returncode}:\n{tail}")
    if "first_iteration_at" in answer:
        answer["first_iteration_s"] = answer.pop("first_iteration_at") - started_at
    return {
        **answer,
        "wall_s": time.time() - started_at,
        "peak_mb": memory.peak_mb,
        "peak_processes": memory.peak_processes,
    }


def environment(threads: int | None, sees_gpus: bool = False) -> dict[str, str]:
    """Return the environment of a script: this process's own, but for the limits of threads, and no GPU."""
    inherited = {name: value for name, value in os.environ.items() if name not in THREAD_VARIABLES}
    limits = {} if threads is None else dict.fromkeys(THREAD_VARIABLES, str(threads))
    hidden = {} if sees_gpus else {"CUDA_VISIBLE_DEVICES": ""}
    return inherited | limits | hidden | {"RAY_ADDRESS": "local"}


class MemoryWatch:
    """Sums the resident memory of a process and all its descendants four times a second."""

    def __init__(self, pid: int) -> None:
        self.pid, self.peak_mb, self.peak_processes = pid, 0.0, 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop watching."""
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.25):
            pids = descendants(self.pid)
            self.peak_mb = max(self.peak_mb, sum(resident_mb(pid) for pid in pids))
            self.peak_processes = max(self.peak_processes, len(pids))


def descendants(pid: int) -> list[int]:
    """Return `pid` and every process below it."""
    found, queue = [], [pid]
    while queue:
        current = queue.pop()
        found.append(current)
        for task in Path(f"/proc/{current}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                queue.extend(map(int, task.read_text().split()))
    return found


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process, 0 when it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_MB
    except OSError:
        return 0.0


def _kill_tree(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        for pid in descendants(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def _answer(output: str) -> dict[str, Any] | None:
    for line in reversed(output.splitlines()):
        if line.startswith("{"):
            with contextlib.suppress(json.JSONDecodeError):
                parsed: dict[str, Any] = json.loads(line)
                return parsed
    return None
