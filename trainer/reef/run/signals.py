"""SIGTERM and Ctrl-C end a run at its next safe point, with a checkpoint."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from types import FrameType, TracebackType
from typing import ClassVar, Self

from reef.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_TERMINATED

EXIT_CODES = {signal.SIGTERM: EXIT_TERMINATED, signal.SIGINT: EXIT_INTERRUPTED}


class Overdue(Exception):  # noqa: N818 - no error: the run ends as it was asked to
    """A signal came and the iteration did not end in time: raised where the driver waits for other processes."""


def end_if_overdue() -> None:
    """Raise `Overdue`, once, when a signal's patience is over; for loops that wait for other processes.

    Not raised from a signal handler: Ray's own waits turn any exception of a handler into a SystemError.
    """
    if time.monotonic() >= StopSignals.deadline:
        StopSignals.deadline = math.inf
        raise Overdue


class StopSignals:
    """Notes SIGTERM and SIGINT while it is entered; a second Ctrl-C raises `KeyboardInterrupt` at once.

    With `patience_s`, an iteration that long after the signal is cut off with `Overdue` as soon as it only waits for
    workers: those may be gone for good, for example when a whole job is deleted. Outside the main thread, where Python
    delivers no signals, it notes nothing.
    """

    deadline: ClassVar[float] = math.inf  # of the process, as signals are: when waiting for others is to end

    def __init__(self, patience_s: float | None = None) -> None:
        self._patience_s = patience_s
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, object] = {}

    @property
    def exit_code(self) -> int:
        """The exit code that the signal asks for."""
        return EXIT_CODES[self.received] if self.received else EXIT_OK

    def __enter__(self) -> Self:
        self._before = self.install()
        return self

    def install(self) -> dict[signal.Signals, object]:
        """Put the handlers, also in place of those that somebody put since; returns those replaced."""
        if threading.current_thread() is not threading.main_thread():
            return {}
        return {number: signal.signal(number, self._note) for number in EXIT_CODES}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        StopSignals.deadline = math.inf
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.signal returned
        self._before = {}

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.received == signal.SIGINT:
            raise KeyboardInterrupt
        if self.received is None:
            self.received = signal.Signals(number)
            # not print: the handler may have interrupted a write to the same stream
            os.write(2, f"{self.received.name}: ending after this iteration, with a checkpoint\n".encode())
            if self._patience_s is not None:
                StopSignals.deadline = time.monotonic() + self._patience_s
