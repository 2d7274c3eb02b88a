"""SIGTERM and Ctrl-C end a run at its next safe point, with a checkpoint."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Self

from reef.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_TERMINATED

EXIT_CODES = {signal.SIGTERM: EXIT_TERMINATED, signal.SIGINT: EXIT_INTERRUPTED}
WAITS_FOR_WORKERS = ("reef.distributed.actor_group", "reef.job.waiting")  # where nothing is half done
LOOK_AGAIN_S = 0.2


class Overdue(Exception):  # noqa: N818 - no error: the run ends as it was asked to
    """A signal came and the iteration did not end in time: raised where the driver waits for other processes."""


class StopSignals:
    """Notes SIGTERM and SIGINT while it is entered; a second Ctrl-C raises `KeyboardInterrupt` at once.

    With `patience_s`, an iteration that long after the signal is cut off with `Overdue` as soon as it only waits for
    workers: those may be gone for good, for example when a whole job is deleted. Outside the main thread, where Python
    delivers no signals, it notes nothing.
    """

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
        handlers = dict.fromkeys(EXIT_CODES, self._note)
        if self._patience_s is not None:
            handlers[signal.SIGALRM] = self._cut_off
        return {number: signal.signal(number, handler) for number, handler in handlers.items()}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._set_alarm(0.0)
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
            self._set_alarm(self._patience_s)

    def _set_alarm(self, first_s: float | None) -> None:
        if self._patience_s is not None and threading.current_thread() is threading.main_thread():
            signal.setitimer(signal.ITIMER_REAL, first_s or 0.0, LOOK_AGAIN_S if first_s else 0.0)

    def _cut_off(self, number: int, frame: FrameType | None) -> None:
        while frame is not None and not frame.f_globals.get("__name__", "").startswith("reef."):
            frame = frame.f_back
        if frame is not None and frame.f_globals["__name__"] in WAITS_FOR_WORKERS:
            self._set_alarm(0.0)
            raise Overdue
