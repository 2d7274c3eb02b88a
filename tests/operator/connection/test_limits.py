"""The token bucket and delays, against hand numbers."""

from __future__ import annotations

import itertools

import pytest

from reef_operator.connection.limits import Backoff, TokenBucket


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_is_free_and_then_the_rate_holds():
    bucket = TokenBucket(10.0, 3, Clock())
    assert [bucket.reserve() for _ in range(5)] == pytest.approx([0, 0, 0, 0.1, 0.2])


def test_tokens_come_back_with_time_and_never_more_than_the_burst():
    clock = Clock()
    bucket = TokenBucket(10.0, 3, clock)
    for _ in range(4):
        bucket.reserve()
    clock.now += 0.3  # three tokens, one of which is owed
    assert [bucket.reserve() for _ in range(3)] == pytest.approx([0, 0, 0.1])
    clock.now += 1000
    assert [bucket.reserve() for _ in range(4)] == pytest.approx([0, 0, 0, 0.1])


def test_delays_double_up_to_the_limit_and_never_end():
    assert list(itertools.islice(Backoff(first=1, limit=5, jitter=0), 6)) == [1, 2, 4, 5, 5, 5]
    assert Backoff(first=1, limit=5, jitter=0).delay(10_000) == 5


def test_jitter_only_shortens():
    delays = [Backoff(first=8, limit=8, jitter=0.5).delay(1) for _ in range(200)]
    assert min(delays) >= 4
    assert max(delays) <= 8
    assert len(set(delays)) > 100
