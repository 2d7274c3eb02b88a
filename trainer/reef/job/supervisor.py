"""The first process of the head's pod: the head is its child, and a head that ends without a result is a fault.

Whatever runs in the head may end it with code 0 (`os._exit(0)`, `exit(0)` of a C library), which Kubernetes takes for
success. It imports little, and what it has is shared with the child: it costs the pod a few MB.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

from reef.errors import EXIT_FAILED, EXIT_OK

SILENT = (
    "the head ended without a message: it was killed, Ray's processes beside it ended, or it hung in code that lets no "
    "thread of Python run, whose stack is at the end of the log"
)
NO_RESULT = (
    "the trainer's process ended without a result: exit(0) was called in it, by the environment, another part of the "
    "job's code, or a library"
)


def termination_log(environment: Mapping[str, str]) -> Path:
    """Where the head leaves its termination message."""
    return Path(environment.get("REEF_TERMINATION_LOG", "/dev/termination-log"))


def go_on_in_child() -> Callable[[int], None]:
    """Return in a child process the function that reports the exit code to the parent; the parent ends with that code.

    To be called before there are threads, with SIGTERM blocked: both processes unblock it when they can handle it.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        return lambda code: _report(writing, code)
    os.close(writing)
    os._exit(supervise(child, reading, termination_log(os.environ)))


def _report(pipe: int, code: int) -> None:
    with contextlib.suppress(OSError):  # the parent is gone
        os.write(pipe, b"%d" % code)


def supervise(child: int, reports: int, message: Path) -> int:
    """Wait until the child has ended; return the exit code that it reported, or one for an end without a report."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the child too
    signal.signal(signal.SIGTERM, lambda *_: forward_sigterm(child))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    while (ended := os.wait())[0] != child:
        pass  # a process whose parent is gone, which in a container falls to the first one
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.set_blocking(reports, False)  # others may have its end open still
    with contextlib.suppress(BlockingIOError):
        if code := os.read(reports, 8):
            return int(code)
    status = os.waitstatus_to_exitcode(ended[1])
    if status == EXIT_OK:
        explain(message, NO_RESULT)
        return EXIT_FAILED
    if status < 0:
        explain(message, f"{SILENT} ({signal.Signals(-status).name})")
        return 128 - status
    return status


def forward_sigterm(child: int) -> None:
    """Let the child end, which writes a checkpoint."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGTERM)


def explain(path: Path, message: str) -> None:
    """Write why the head ended, unless it did so itself; what it had prepared about the training stays.

    There is no exit code in it, as the head reported none: so readers know that it was cut off.
    """
    try:
        text = path.read_text(encoding="utf-8")
        said = json.loads(text) if text else {"message": SILENT}
        if said["message"] == SILENT:
            path.write_text(json.dumps({**said, "exitCode": None, "reason": "Failed", "message": message}))
    except (OSError, ValueError, KeyError, TypeError):  # a message is worth no other end
        return
