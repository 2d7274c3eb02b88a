"""Rate limits: a token bucket for requests, and exponential backoff after failures."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass


class TokenBucket:
    """Allows `rate` requests per second, and up to `burst` at once after a pause.

    Args:
        rate: tokens per second.
        burst: maximum number of saved tokens.
        clock: monotonic time in seconds.
    """

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] | None = None) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock or asyncio.get_running_loop().time
        self._tokens = float(burst)
        self._filled = self._clock()

    def reserve(self) -> float:
        """Take one token, on credit if none is left; return the seconds to wait before using it."""
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._filled) * self._rate)
        self._filled = now
        self._tokens -= 1
        return max(0.0, -self._tokens / self._rate)

    async def take(self) -> None:
        """Wait for one token; waiting callers are served in order."""
        delay = self.reserve()
        if delay > 0:
            await asyncio.sleep(delay)


@dataclass(frozen=True)
class Backoff:
    """An endless series of delays in seconds that double from `first` to `limit`.

    Each delay is shortened by a random fraction of up to `jitter`, so that the clients of a restarted server do not
    all return at the same moment.
    """

    first: float = 0.5
    limit: float = 10.0
    jitter: float = 0.3

    def delay(self, failures: int) -> float:
        """Return the seconds to wait after `failures` failures in a row, counted from 1."""
        longest = min(self.limit, self.first * 2.0 ** min(failures - 1, 30))
        return longest * (1 - self.jitter * random.random())  # noqa: S311 (spread, not secrecy)

    def __iter__(self) -> Iterator[float]:
        """Yield all delays in order, without end."""
        failures = 0
        while True:
            failures += 1
            yield self.delay(failures)
