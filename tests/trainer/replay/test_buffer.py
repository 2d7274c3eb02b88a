from __future__ import annotations

import numpy as np
import pytest

from reef.batch import Transitions
from reef.errors import ConfigError
from reef.replay.buffer import ReplayBuffer


def numbered(first: int, count: int) -> Transitions:
    """Transitions whose every value tells their number."""
    number = np.arange(first, first + count)
    return Transitions(
        obs=np.stack([number, -number], axis=1).astype(np.uint8),
        actions=number.astype(np.int64),
        rewards=number.astype(np.float32),
        next_obs=np.stack([number + 1, -number], axis=1).astype(np.uint8),
        terminated=number % 2 == 0,
        truncated=number % 3 == 0,
        extras={"discounts": (number / 100).astype(np.float32)},
    )


def stored(buffer: ReplayBuffer) -> list[int]:
    return sorted(buffer.take(np.arange(len(buffer))).actions.tolist())


def test_the_oldest_are_overwritten_and_rows_stay_whole() -> None:
    buffer = ReplayBuffer(5)
    buffer.add(numbered(0, 4))
    rows = buffer.add(numbered(4, 3))
    assert rows.tolist() == [4, 0, 1]
    assert stored(buffer) == [2, 3, 4, 5, 6]
    batch = buffer.sample(50, np.random.default_rng(0))
    assert set(batch.actions.tolist()) == {2, 3, 4, 5, 6}
    np.testing.assert_array_equal(batch.rewards, batch.actions)
    np.testing.assert_array_equal(batch.next_obs[:, 0], batch.actions + 1)
    np.testing.assert_array_equal(batch.terminated, batch.actions % 2 == 0)
    np.testing.assert_allclose(batch.extras["discounts"], batch.actions / 100)


def test_types_are_kept() -> None:
    buffer = ReplayBuffer(5)
    buffer.add(numbered(0, 2))
    batch = buffer.sample(3, np.random.default_rng(0))
    assert (batch.obs.dtype, batch.actions.dtype, batch.terminated.dtype) == (np.uint8, np.int64, np.bool_)


def test_more_than_fits_at_once_keeps_the_newest() -> None:
    buffer = ReplayBuffer(3)
    buffer.add(numbered(0, 10))
    assert stored(buffer) == [7, 8, 9]


def test_samples_are_copies() -> None:
    buffer = ReplayBuffer(2)
    buffer.add(numbered(0, 2))
    before = buffer.sample(4, np.random.default_rng(0)).rewards.copy()
    buffer.sample(4, np.random.default_rng(0)).rewards[:] = 99
    np.testing.assert_array_equal(buffer.sample(4, np.random.default_rng(0)).rewards, before)


def test_a_restored_buffer_draws_and_overwrites_the_same() -> None:
    buffer, restored = ReplayBuffer(5), ReplayBuffer(5)
    buffer.add(numbered(0, 7))
    restored.set_state(buffer.state())
    for one in (buffer, restored):
        one.add(numbered(7, 1))
    first, second = (one.sample(20, np.random.default_rng(1)) for one in (buffer, restored))
    np.testing.assert_array_equal(first.actions, second.actions)


@pytest.mark.parametrize(("capacity", "kept"), [(3, [4, 5, 6]), (9, [2, 3, 4, 5, 6])])
def test_another_capacity_keeps_the_newest(capacity: int, kept: list[int]) -> None:
    buffer, restored = ReplayBuffer(5), ReplayBuffer(capacity)
    buffer.add(numbered(0, 7))
    restored.set_state(buffer.state())
    assert stored(restored) == kept
    restored.add(numbered(7, 1))
    assert stored(restored) == [*kept, 7][-capacity:]


def test_a_capacity_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="capacity=0"):
        ReplayBuffer(0)
