"""`ray start` as a child process: its command line, its output, its end. Free of Ray itself."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO

from reef.container import memory_bytes
from reef.distributed.node_settings import (
    ELASTIC,
    NODE_CHECKS,
    OF_HEAD,
    OF_POOL,
    POOL,
    QUIET,
    START_HOOK,
    WORKERS_LABEL,
)
from reef.errors import ConfigError

log = logging.getLogger(__name__)
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - where Ray's object store lives
SHARED_SHARE, MEMORY_SHARE = 0.8, 0.3  # the object store's part of what is free in /dev/shm, and of the pod's memory
STORE_LEAST = 80 << 20  # bytes; Ray refuses less than 75 MiB
AT_ONCE = {
    "PYTHONUNBUFFERED": "1",  # "started" is to be read when it is so
    "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",  # actors here never end by themselves, so that draining only waits
}
READY = "Ray runtime started."
REFUSED = "InvalidAuthToken"
KEPT_LINES = 8
STOP_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Node:
    """What this pod offers to Ray, from its environment."""

    ip: str
    cpus: int
    gpus: int
    object_store: int | None  # bytes; None: as much as /dev/shm has room for

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Node:
        """Read POD_IP, REEF_CPUS, REEF_GPUS, REEF_OBJECT_STORE_BYTES; ConfigError names what is missing or wrong.

        Fractions of a CPU are rounded up, as Ray counts whole ones.
        """
        require_token(environment)
        store = number(environment, "REEF_OBJECT_STORE_BYTES", 0)
        return cls(
            ip=required(environment, "POD_IP"),
            cpus=math.ceil(number(environment, "REEF_CPUS", 1)),
            gpus=math.ceil(number(environment, "REEF_GPUS", 0)),
            object_store=int(store) or None,
        )

    def head_command(self, port: int, *, takes_workers: bool) -> list[str]:
        """The command line of the head's node, and whether rollout and evaluation workers may be placed there."""
        checks = json.dumps(NODE_CHECKS)
        listen = ["--head", f"--port={port}", "--include-dashboard=false", f"--system-config={checks}"]
        own = self._own({ELASTIC: 1}, OF_HEAD if takes_workers else "")
        return [*self._command(), *listen, *own]

    def worker_command(self, address: str, pool: str, *, takes_workers: bool) -> list[str]:
        """The same of a worker's node of that pool, which joins the head at `address`."""
        own = self._own({f"{POOL}{pool}": 1}, OF_POOL if takes_workers else "")
        return [*self._command(), f"--address={address}", *own]

    def _own(self, resources: dict[str, int], label: str) -> list[str]:
        labels = [f"--labels={WORKERS_LABEL}={label}"] if label else []
        return [f"--resources={json.dumps(resources)}", *labels]

    def _command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--log-style=record"),
            *("--include-log-monitor=false", "--disable-usage-stats", "--min-worker-port=0", "--max-worker-port=0"),
            *(f"--node-ip-address={self.ip}", f"--num-cpus={self.cpus}", f"--num-gpus={self.gpus}"),
            f"--object-store-memory={self.object_store or object_store_bytes()}",
        ]


def required(environment: Mapping[str, str], key: str) -> str:
    """The value of a variable; ConfigError when it is not there."""
    if not environment.get(key):
        raise ConfigError(f"environment variable {key}: is not set, expected a value: the pod's template must give it.")
    return environment[key]


def number(environment: Mapping[str, str], key: str, default: float) -> float:
    """The number in a variable; ConfigError when it holds something else."""
    text = environment.get(key) or str(default)
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not (math.isfinite(value) and value >= 0):
        raise ConfigError(f"environment variable {key}={text!r}: expected a number of 0 or more.")
    return value


def require_token(environment: Mapping[str, str]) -> None:
    """Raise ConfigError unless Ray will ask for a token: without one, any peer can run code in the pod."""
    if environment.get("RAY_AUTH_MODE") != "token":
        raise ConfigError(
            f"environment variable RAY_AUTH_MODE={environment.get('RAY_AUTH_MODE')!r}: expected 'token', as Ray "
            "without authentication runs any code that it is sent."
        )
    if not environment.get("RAY_AUTH_TOKEN"):
        raise ConfigError("environment variable RAY_AUTH_TOKEN: is not set, expected the token of the job's Secret.")


def object_store_bytes() -> int:
    """How large Ray's object store may be: less than /dev/shm has free, or Ray would use the disk without a warning."""
    room = SHARED_SHARE * shutil.disk_usage(SHARED_MEMORY).free
    if room < STORE_LEAST:
        log.warning(
            "%s has room for %d MiB of objects and Ray needs %d: they will be kept on disk, which is slow. "
            "Give the pod a larger volume there.",
            SHARED_MEMORY, int(room) >> 20, STORE_LEAST >> 20,
        )  # fmt: skip
    return int(max(min(room, MEMORY_SHARE * memory_bytes()), STORE_LEAST))


class RayProcess:
    """A running `ray start --block`; what it prints goes to this process's stderr."""

    def __init__(self, command: list[str]) -> None:
        """Start it in a process group of its own, so that its own processes end with it."""
        environment = QUIET | os.environ | AT_ONCE | START_HOOK
        self._process = subprocess.Popen(  # noqa: S603 - the command is ours
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment,
            process_group=0,
        )
        self.pid = self._process.pid
        self._said: deque[str] = deque(maxlen=KEPT_LINES)
        self.changed = threading.Event()  # it is ready, refused, or has ended
        self.ready = self.refused = self.expected_to_end = False
        assert self._process.stdout is not None
        threading.Thread(target=self._listen, args=(self._process.stdout,), name="ray", daemon=True).start()

    def _listen(self, output: IO[str]) -> None:
        for line in output:
            sys.stderr.write(f"ray: {line}")
            self._said.append(line.rstrip())
            self.ready = self.ready or READY in line
            self.refused = self.refused or REFUSED in line
            if self.ready or self.refused:
                self.changed.set()
        self.changed.set()

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    @property
    def last_lines(self) -> str:
        """The end of what it printed."""
        return "\n".join(self._said)

    def stop(self) -> None:
        """End it and everything it started."""
        self.expected_to_end = True
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            log.warning("ray does not end by itself: it is killed")
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()


def reap_orphans(*own: int) -> None:
    """Collect processes whose parents are gone, which in a container fall to its first process; not our `own`."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and ended.si_pid not in own:
            os.waitpid(ended.si_pid, os.WNOHANG)
