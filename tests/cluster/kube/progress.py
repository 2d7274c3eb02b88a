"""Saying what is being done and for how long, waiting with a limit, and running commands."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path


class ClusterError(Exception):
    """The test cluster could not do what was asked; the message says what and shows the end of the log."""


class NoClusterError(ClusterError):
    """There can be no cluster on this machine as it is; the message says why."""


def home_folder() -> str:
    """The account's own; tests point $HOME elsewhere."""
    return pwd.getpwuid(os.getuid()).pw_dir


def cache_folder() -> Path:
    """Where everything lies that is worth keeping between runs: $REEF_CACHE, or ~/.cache/reef."""
    named = os.environ.get("REEF_CACHE")
    return Path(named) if named else Path(home_folder(), ".cache", "reef")


def say(text: str) -> None:
    """Print a line at once."""
    print(f"==> {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def stage(what: str) -> Iterator[None]:
    """Say what begins, and in the end how long it took."""
    say(f"{what} ...")
    begun = time.monotonic()
    yield
    say(f"{what}: {time.monotonic() - begun:.1f} s")


def run(
    command: Sequence[str | Path],
    *,
    timeout_s: float = 60,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
) -> str:
    """Run a command and return its standard output.

    Args:
        command: program and arguments.
        timeout_s: limit in seconds.
        cwd: folder to run it in.
        env: variables that are added to this process' own.
        stdin: text given to it.

    Raises:
        ClusterError: it failed or took too long; with the last lines that it printed.
    """
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired as late:
        raise ClusterError(f"{' '.join(words[:6])} took more than {timeout_s:.0f} s") from late
    if done.returncode:
        raise ClusterError(f"{' '.join(words)} failed ({done.returncode}):\n{(done.stdout + done.stderr)[-4000:]}")
    return done.stdout


def wait_until(
    what: str,
    holds: Callable[[], bool],
    *,
    timeout_s: float = 60,
    poll_s: float = 0.1,
    log: Path | None = None,
) -> None:
    """Wait until `holds` answers True; a ClusterError, OSError or LookupError (no status yet) means "not yet".

    Raises:
        ClusterError: it did not within the limit; with the last reason, and the end of the log if one is given.
    """
    limit = time.monotonic() + timeout_s
    reason = ""
    while True:
        late = time.monotonic() > limit  # asked first: this machine may stand still between a look and the clock
        try:
            if holds():
                return
        except (ClusterError, OSError, LookupError) as problem:
            reason = f": {problem!r}" if isinstance(problem, LookupError) else f": {problem}"
        if late:
            tail = f"\n--- end of {log}\n{log.read_text(errors='replace')[-3000:]}" if log and log.exists() else ""
            raise ClusterError(f"waited {timeout_s:.0f} s in vain for {what}{reason}{tail}")
        time.sleep(poll_s)


@contextlib.contextmanager
def locked(path: Path, *, timeout_s: float = 1800) -> Iterator[None]:
    """Hold an exclusive lock on a file among all processes of this machine; wait for it with a limit."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        waiting = False
        limit = time.monotonic() + timeout_s
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not waiting:
                    say(f"waiting for another process that holds {path}")
                waiting = True
            if time.monotonic() > limit:
                raise ClusterError(f"another process held {path} for {timeout_s:.0f} s")
            time.sleep(0.2)
        yield
