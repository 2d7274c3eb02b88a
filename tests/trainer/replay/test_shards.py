from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reef.batch import Rollout, Sample
from reef.replay.settings import ReplayBufferConfig
from reef.replay.shards import LocalShards, ReplayShard

POLICY = "default_policy"


def shards(count: int = 2, capacity: int = 64, **given: Any) -> LocalShards:
    settings = ReplayBufferConfig(capacity=capacity, prioritized_replay_alpha=1.0, prioritized_replay_eps=1e-3)
    usual = {"count": count, "batch_size": 8, "n_step": 1, "gamma": 0.9, "seed": 0}
    return LocalShards(settings, **(usual | given))


def fragment(first: int, steps: int = 4, worker: int = 1, errors: Any = None) -> Sample:
    """Observations count up from `first`; the Q-values are such that each step has the TD error given."""
    number = np.arange(first, first + steps, dtype=np.float32)[:, None]
    none = np.zeros(number.shape, np.bool_)
    rollout = Rollout(number[..., None], number, np.ones_like(number), number[..., None] + 1, none, none, ~none)
    if errors is not None:
        q_values = 1.0 - np.asarray(errors, np.float32)[:, None]
        rollout.extras.update(q_values=q_values, next_values=np.zeros_like(q_values))
    return Sample({POLICY: rollout}, [], steps, steps, worker)


def contents(shard: ReplayShard) -> set[float]:
    return set(shard.state()["buffers"][POLICY]["columns"]["obs"][:, 0].tolist())


def drawn(one: LocalShards) -> Any:
    assert one.request()
    return one.take()


def test_fragments_go_to_the_shards_in_turn_and_the_capacity_is_divided() -> None:
    one = shards(count=3, capacity=10)
    for first in (0, 10, 20, 30):
        one.add(fragment(first, steps=3))
    assert [contents(shard) for shard in one.shards] == [{2, 30, 31, 32}, {10, 11, 12}, {20, 21, 22}]
    assert (one.capacity, one.sizes, one.stored) == (4, [4, 3, 3], 10)


def test_sums_end_with_the_fragment_and_every_step_is_stored_at_once() -> None:
    one = shards(count=1, n_step=3)
    for first in (0, 4):
        one.add(fragment(first))
    columns = one.shards[0].state()["buffers"][POLICY]["columns"]
    assert columns["obs"][:, 0].tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
    assert columns["next_obs"][:, 0].tolist() == [3, 4, 4, 4, 7, 8, 8, 8]
    np.testing.assert_allclose(columns["discounts"], [0.729, 0.729, 0.81, 0.9] * 2, rtol=1e-6)
    np.testing.assert_allclose(columns["rewards"], [2.71, 2.71, 1.9, 1.0] * 2, rtol=1e-6)
    assert not columns["terminated"].any()


def test_first_priorities_are_the_td_errors_of_the_worker() -> None:
    one = shards(count=1, batch_size=4000)
    one.add(fragment(0, errors=[1.0, -3.0, 0.0, 4.0]))
    batch = drawn(one).batches[POLICY]
    assert batch.extras.keys() == {"discounts", "weights", "indices"}
    shares = np.bincount(batch.obs[:, 0].astype(int), minlength=4) / 4000
    np.testing.assert_allclose(shares, np.array([1.0, 3.0, 0.0, 4.0]) / 8, atol=2e-3)


def test_larger_shards_are_drawn_from_more_often() -> None:
    one = shards(batch_size=1)
    for first, steps in ((0, 3), (10, 1)):
        one.add(fragment(first, steps))
    found = [drawn(one).shard for _ in range(400)]
    assert 0.65 < found.count(0) / 400 < 0.85


def test_nothing_is_drawn_from_nothing_and_one_batch_at_a_time() -> None:
    one = shards()
    assert not one.request() and one.take() is None
    one.add(fragment(0))
    assert [one.request(), one.request(), one.num_requested] == [True, False, 1]
    assert one.take() is not None and one.num_requested == 0


class Lossy(LocalShards):
    """Some shards may be down."""

    healthy: Any = (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("healthy", "steps", "needed"),
    [((0, 1, 2, 3), 12, 12), ((0, 1, 2, 3), 100, 16), ((0, 1, 3), 14, 12), ((0, 1, 3), 5, 5), ((2,), 0, 1)],
)
def test_learning_waits_for_no_more_steps_than_fit_into_the_shards_that_are_up(
    healthy: tuple[int, ...], steps: int, needed: int
) -> None:
    one = Lossy(ReplayBufferConfig(capacity=16), count=4, batch_size=8, n_step=1, gamma=0.9, seed=0)
    one.healthy = healthy
    while one.stored < needed:
        assert not one.holds(steps)
        one.add(fragment(0, steps=1))
    assert one.holds(steps)
    one.healthy = ()
    assert not one.holds(steps), "all are lost"


def test_new_priorities_reach_the_shard_of_the_batch() -> None:
    one = shards()
    for first in (0, 10):
        one.add(fragment(first))
    batch = drawn(one)
    errors = np.where(batch.batches[POLICY].obs[:, 0] % 10 == 2, 1000.0, 0.0)
    one.reprioritize(batch, {POLICY: errors})
    tree = [shard.state()["buffers"][POLICY]["priorities"] for shard in one.shards]
    assert tree[batch.shard][2] == pytest.approx(1000.0, abs=0.01)
    assert (tree[1 - batch.shard] == 1.0).all()


@pytest.mark.parametrize(("more", "kept"), [(0, [9, 9, 9, 9]), (2, [1, 1, 9, 9]), (4, [1] * 4), (9, [1] * 4)])
def test_priorities_that_come_late_never_reach_a_newer_transition(more: int, kept: list[int]) -> None:
    shard = ReplayShard(ReplayBufferConfig(capacity=4, prioritized_replay_alpha=1.0), gamma=0.9, seed=0)
    shard.add(fragment(0))
    _, added = shard.draw(4)
    for step in range(more):
        shard.add(fragment(10 + step, steps=1, errors=[1.0]))
    shard.reprioritize({POLICY: (np.arange(4), np.full(4, 9.0))}, added)
    np.testing.assert_allclose(shard.state()["buffers"][POLICY]["priorities"], kept, rtol=1e-4)


def test_a_uniform_memory_takes_no_priorities() -> None:
    settings = ReplayBufferConfig(capacity=8, prioritized_replay=False)
    one = LocalShards(settings, count=1, batch_size=2, n_step=1, gamma=0.9, seed=0)
    one.add(fragment(0, errors=[1.0] * 4))
    batch = drawn(one)
    assert batch.batches[POLICY].extras.keys() == {"discounts"}
    one.reprioritize(batch, {POLICY: np.ones(2)})


def test_restored_shards_go_on_the_same() -> None:
    one, two = shards(n_step=2), shards(n_step=2)
    for first in (0, 10, 20):
        one.add(fragment(first))
    drawn(one)
    two.set_state(one.state())
    for each in (one, two):
        each.add(fragment(30))
    assert two.sizes == one.sizes == [8, 8]
    for _ in range(5):
        first, second = drawn(one), drawn(two)
        assert first.shard == second.shard
        np.testing.assert_array_equal(first.batches[POLICY].obs, second.batches[POLICY].obs)


def test_other_numbers_of_shards_restore_what_fits(caplog: pytest.LogCaptureFixture) -> None:
    stored = shards(count=2)
    for first in (0, 10):
        stored.add(fragment(first))
    more, fewer = shards(count=3), shards(count=1)
    more.add(fragment(50)), more.add(fragment(60)), more.add(fragment(70))
    more.set_state(stored.state())
    assert more.sizes == [4, 4, 0] and len(more.shards[2]) == 0
    assert not caplog.messages
    fewer.set_state(stored.state())
    assert fewer.sizes == [4] and contents(fewer.shards[0]) == {0, 1, 2, 3}
    assert "num_replay_buffer_shards=1: the checkpoint has 2 shards" in caplog.text


def test_a_shard_that_was_down_at_the_checkpoint_is_restored_empty(caplog: pytest.LogCaptureFixture) -> None:
    one, two = shards(count=3), shards(count=3)
    for first in (0, 10, 20):
        one.add(fragment(first))
    state = one.state()
    state["shards"][0] = state["shards"][2] = None
    two.set_state(state)
    assert (two.sizes, two.stored, [len(shard) for shard in two.shards]) == ([0, 4, 0], 4, [0, 4, 0])
    assert caplog.messages == [
        "replay shards that were down when the checkpoint was written begin empty: 1, 3 (8 steps are lost)"
    ]
    assert {drawn(two).shard for _ in range(20)} == {1}


def test_each_shard_has_a_random_stream_of_its_own() -> None:
    one = shards(batch_size=16)
    for _ in range(2):
        one.add(fragment(0))
    first, second = (shard.sample(16)[POLICY].obs[:, 0].tolist() for shard in one.shards)
    assert first != second
