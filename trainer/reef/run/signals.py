"""SIGTERM and Ctrl-C end a run at its next safe point, with a checkpoint."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Self

from reef.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_TERMINATED

EXIT_CODES = {signal.SIGTERM: EXIT_TERMINATED, signal.SIGINT: EXIT_INTERRUPTED}


class StopSignals:
    """Notes SIGTERM and SIGINT while it is entered; a second Ctrl-C raises `KeyboardInterrupt` at once.

    Outside the main thread, where Python delivers no signals, it notes nothing.
    """

    def __init__(self) -> None:
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
