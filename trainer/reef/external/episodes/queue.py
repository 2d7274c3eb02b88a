"""Finished fragments, which wait to be learned from."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from reef.external.episodes.episode import Played


class StepQueue:
    """Finished fragments between the server's thread and the worker that learns from them."""

    def __init__(self, most_steps: int) -> None:
        """`most_steps`: from this number on it is full."""
        self.most, self._steps = most_steps, 0
        self._waiting: deque[Played] = deque()
        self._changed = threading.Condition()

    @property
    def steps(self) -> int:
        """Number of steps that wait."""
        return self._steps

    @property
    def is_full(self) -> bool:
        """Whether no application should play on until some were learned from."""
        return self._steps >= self.most

    def put(self, played: Played) -> None:
        """Add finished fragments."""
        with self._changed:
            self._waiting.append(played)
            self._steps += len(played)
            self._changed.notify()

    def clear(self) -> None:
        """Drop all fragments."""
        with self._changed:
            self._waiting.clear()
            self._steps = 0

    def take(self, steps: int, idle_timeout_s: float, count: Callable[[Played], int] = len) -> list[Played]:
        """What was played, of together at least `steps` by this `count`; fewer, or none, after `idle_timeout_s`."""
        taken: list[Played] = []
        missing, deadline = steps, time.monotonic() + idle_timeout_s
        with self._changed:
            while missing > 0:
                if not self._changed.wait_for(lambda: self._waiting, max(deadline - time.monotonic(), 0.0)):
                    break
                played = self._waiting.popleft()
                self._steps -= len(played)
                missing -= (progress := count(played))
                taken.append(played)
                if not progress and time.monotonic() > deadline:  # others of this kind may follow without end
                    break
        return taken
