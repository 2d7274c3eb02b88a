"""SIGTERM and Ctrl-C end a run at its next safe point, with a checkpoint."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

from reef.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_TERMINATED
from reef.run.process.deadline import Deadline

DELAY_S, MOST_DELAYS = 0.005, 2000  # for how long and how often SIGTERM waits for the end of an import
EXIT_CODES = {signal.SIGTERM: EXIT_TERMINATED, signal.SIGINT: EXIT_INTERRUPTED}


class Terminated(BaseException):
    """SIGTERM while there is nothing to save yet."""


def raise_on_sigterm() -> None:
    """Let SIGTERM raise `Terminated`, also one that was blocked until now: a container's first process would ignore it.

    Outside the main thread, where Python delivers no signals, nothing changes.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _raise_terminated)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """Let SIGTERM raise `Terminated` in this block."""
    before = signal.getsignal(signal.SIGTERM)
    raise_on_sigterm()
    try:
        yield
    finally:
        put_back(before)


@contextmanager
def sigterm_as_before() -> Iterator[None]:
    """Put back the handler of SIGTERM after a block in which Ray puts its own, which raises SystemExit."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    except SystemExit as end:
        raise Terminated from end
    finally:
        put_back(before)


def put_back(handler: Any) -> None:
    """Let SIGTERM be handled so again; None is a handler that Python does not know."""
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)


def _raise_terminated(number: int, frame: FrameType | None, delays: int = MOST_DELAYS) -> None:
    if delays and _is_importing(frame):  # modules in C make something else of an exception in their middle
        signal.signal(signal.SIGTERM, _Postponed(delays - 1))
        return
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough: what is left to do is to end
    raise Terminated


class _Postponed:
    """The handler while a SIGTERM that came waits to be sent again."""

    def __init__(self, delays: int) -> None:
        self._delays = delays
        self._timer = threading.Timer(DELAY_S, os.kill, (os.getpid(), signal.SIGTERM))
        self._timer.start()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        _raise_terminated(number, frame, self._delays)

    def end(self) -> None:
        """Wait no longer."""
        self._timer.cancel()
        _raise_terminated(signal.SIGTERM, None)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None


class StopSignals:
    """Notes SIGTERM and SIGINT while it is entered; a second Ctrl-C raises `KeyboardInterrupt` at once.

    With `patience_s`, an iteration that long after the signal is cut off with `Overdue` as soon as it only waits for
    workers: those may be gone for good, for example when a whole job is deleted. As much time again is left to save.
    Outside the main thread, where Python delivers no signals, it notes nothing.
    """

    def __init__(self, patience_s: float | None = None) -> None:
        self.patience_s = patience_s
        self.deadline = Deadline()
        self.terminated = False  # whether SIGTERM came, also after the run
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
        """Put the handlers, also in place of those that other code has put since; returns those replaced."""
        if threading.current_thread() is not threading.main_thread():
            return {}
        if isinstance(postponed := signal.getsignal(signal.SIGTERM), _Postponed):
            postponed.end()
        return {number: signal.signal(number, self._note) for number in EXIT_CODES}

    def __exit__(self, *_: object) -> None:
        self.deadline.clear()
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.signal returned
        self._before = {}

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.received == signal.SIGINT:
            raise KeyboardInterrupt
        self.terminated |= number == signal.SIGTERM
        if self.received is None:
            self.received = signal.Signals(number)
            # not print: the handler may have interrupted a write to the same stream
            os.write(2, f"{self.received.name}: ending after this iteration, with a checkpoint\n".encode())
            if self.patience_s is not None:
                self.deadline.set(self.patience_s)

    def note_sigterm(self, number: int, frame: FrameType | None) -> None:
        """A handler for the end of a process, when how it ended is decided: SIGTERM is remembered, and no more."""
        self.terminated = True
