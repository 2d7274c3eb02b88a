"""When a run is to end, for all code of the run that waits for other processes."""

from __future__ import annotations

import math
import threading
import time
from typing import NoReturn


class Overdue(Exception):  # noqa: N818 - no error: the run ends as it was asked to
    """A signal came and the iteration did not end in time: raised where the driver waits for other processes."""


class Deadline:
    """When a run is to end; never, until a signal comes."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Let there be none."""
        self.waiting_ends = math.inf  # when waiting for other processes is to end, in seconds of time.monotonic()
        self.process_ends = math.inf  # when this process is killed

    def set(self, patience_s: float) -> None:
        """End waiting in `patience_s` seconds, and the process in as many again."""
        self.waiting_ends = time.monotonic() + patience_s
        self.process_ends = self.waiting_ends + patience_s

    def time_left(self) -> float:
        """Seconds until this process must have ended; infinity without a signal, or without a limit."""
        return max(self.process_ends - time.monotonic(), 0.0)

    def end_if_over(self) -> None:
        """Raise `Overdue`, once, when a signal's patience is over; for loops that wait for other processes.

        Not raised from a signal handler: Ray's own waits turn any exception of a handler into a SystemError.
        """
        if time.monotonic() >= self.waiting_ends:
            self._end()

    def end_if_set(self) -> None:
        """As `end_if_over`, without patience: for pauses in which no iteration is under way."""
        if self.time_left() < math.inf:
            self._end()

    def _end(self) -> NoReturn:
        self.waiting_ends = math.inf  # what is written in the end is not cut off
        raise Overdue


class BackgroundDeadline(Deadline):
    """That of a thread beside a run: when the run ends, which is still raised in the run itself, or it is cancelled."""

    def __init__(self, run: Deadline) -> None:
        super().__init__()
        self.run = run

    def cancel(self) -> None:
        """Have the thread end, until `clear`."""
        self.waiting_ends = -math.inf

    def time_left(self) -> float:
        """Those of the run."""
        return self.run.time_left()

    def end_if_over(self) -> None:
        """Raise `Overdue`, in the thread every time; in the main thread, which gets the signals, as the run does."""
        if threading.current_thread() is threading.main_thread():
            self.run.end_if_over()
        elif time.monotonic() >= min(self.waiting_ends, self.run.waiting_ends):
            raise Overdue
