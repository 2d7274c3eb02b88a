"""Steps are drawn from the newest that were read, and reading goes round and round."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from reef.batch import Rollout
from reef.offline.recorded import RecordedSource
from reef.offline.shuffle_window import ShuffleWindow


def episode(number: float) -> Rollout:
    shape = (2, 1)
    ended, zeros = np.array([[False], [True]]), np.zeros((*shape, 1), np.float32)
    rewards = np.full(shape, number, np.float32)
    no, yes = np.zeros(shape, np.bool_), np.ones(shape, np.bool_)
    return Rollout(zeros, np.zeros(shape, np.int64), rewards, zeros, ended, no, yes)


def source(*numbers: float, weight: float = 1.0) -> RecordedSource:
    def read() -> Iterator[Rollout]:
        yield from map(episode, numbers)

    return RecordedSource(read, weight)


def window(*sources: RecordedSource, size: int) -> ShuffleWindow:
    return ShuffleWindow(sources, size=size, gamma=0.9, n_step=1, seed=0)


def test_it_is_filled_before_the_first_draw_and_then_moves_on() -> None:
    shuffled = window(source(*range(100)), size=20)
    assert set(shuffled.sample(200).rewards) <= set(range(200))
    (held,) = shuffled.windows
    assert held.buffer.added == 220
    drawn = shuffled.sample(2).rewards
    assert set(drawn) <= {*range(1, 12)}, "110 episodes were read before, and the newest ten are held"


def test_the_end_is_followed_by_the_beginning() -> None:
    shuffled = window(source(1, 2, 3), size=4)
    assert {float(reward) for _ in range(10) for reward in shuffled.sample(3).rewards} == {1.0, 2.0, 3.0}


def test_sources_have_their_shares() -> None:
    shuffled = window(source(1), source(2, weight=3.0), size=40)
    assert [len(held.buffer) if held.buffer.added else held.buffer.capacity for held in shuffled.windows] == [10, 30]
    assert shuffled.sample(4000).rewards.mean() == pytest.approx(1.75, abs=0.05)


def test_it_goes_on_where_it_was() -> None:
    first, second = window(source(*range(9)), size=6), window(source(*range(9)), size=6)
    first.sample(5)
    second.set_state(first.state())
    for _ in range(4):
        np.testing.assert_array_equal(first.sample(7).rewards, second.sample(7).rewards)
