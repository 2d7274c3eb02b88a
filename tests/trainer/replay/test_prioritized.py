from __future__ import annotations

import numpy as np
import pytest

from reef.batch import Transitions
from reef.errors import ConfigError
from reef.replay.buffer import ReplayBuffer
from reef.replay.memory import make_buffer
from reef.replay.prioritized import PrioritizedReplay, SumTree
from reef.replay.settings import ReplayBufferConfig


def numbered(first: int, count: int) -> Transitions:
    number = np.arange(first, first + count)
    column, flags = number.astype(np.float32), np.zeros(count, np.bool_)
    return Transitions(column[:, None], number, column, column[:, None], flags, flags)


@pytest.mark.parametrize("capacity", [1, 2, 16, 17, 256, 257, 5000])
def test_find_is_a_search_in_the_running_sum(capacity: int) -> None:
    rng = np.random.default_rng(capacity)
    tree, leaves = SumTree(capacity), np.zeros(capacity)
    for _ in range(3):
        changed = rng.integers(capacity, size=40)
        values = rng.random(40)
        tree[changed], leaves[changed] = values, values
    assert tree.total == pytest.approx(leaves.sum())
    mass = rng.random(200) * leaves.sum() * 0.999999
    np.testing.assert_array_equal(tree.find(mass), np.searchsorted(leaves.cumsum(), mass, side="right"))


def test_priorities_decide_how_often_a_transition_is_drawn() -> None:
    replay = PrioritizedReplay(8, alpha=0.5, beta=1.0, eps=1e-9)
    replay.add(numbered(0, 3))
    replay.update_priorities(np.array([0, 1, 2]), np.array([1.0, -4.0, 9.0]))  # alpha 0.5 makes them 1 : 2 : 3
    rng = np.random.default_rng(0)
    batch = replay.sample(6000, rng)
    assert np.bincount(batch.actions).tolist() == pytest.approx([1000, 2000, 3000], abs=2)  # stratified: nearly exact
    np.testing.assert_array_equal(batch.extras["indices"], batch.actions)
    # beta 1: the weights undo the preference, 1/1 : 1/2 : 1/3
    np.testing.assert_allclose(batch.extras["weights"], 1.0 / (batch.actions + 1), rtol=1e-5)


def test_beta_says_how_far_the_weights_undo_the_preference() -> None:
    for beta, weights in ((0.0, [1.0, 1.0]), (0.5, [1.0, 0.5]), (1.0, [1.0, 0.25])):
        replay = make_buffer(ReplayBufferConfig(prioritized_replay_alpha=1.0, prioritized_replay_beta=beta))
        replay.add(numbered(0, 2))
        replay.update_priorities(np.array([0, 1]), np.array([1.0, 4.0]))
        batch = replay.sample(100, np.random.default_rng(0))
        np.testing.assert_allclose(batch.extras["weights"], np.array(weights)[batch.actions], rtol=1e-4)


def test_the_largest_weight_of_a_batch_is_one_whatever_else_is_stored() -> None:
    replay = PrioritizedReplay(4, alpha=1.0, beta=1.0)
    replay.add(numbered(0, 2))
    replay.update_priorities(np.array([0, 1]), np.array([1.0, 100.0]))
    rng, seen = np.random.default_rng(0), set()
    for _ in range(500):
        batch = replay.sample(1, rng)
        seen.add(int(batch.actions[0]))
        assert batch.extras["weights"].tolist() == [1.0]
    assert seen == {0, 1}


def test_new_transitions_get_the_largest_priority_so_far() -> None:
    replay = PrioritizedReplay(4, alpha=1.0, eps=1e-6)
    replay.add(numbered(0, 2))
    replay.update_priorities(np.array([0, 1]), np.array([5.0, 1e-6]))
    replay.add(numbered(2, 1))
    drawn = np.bincount(replay.sample(1000, np.random.default_rng(0)).actions, minlength=3)
    assert drawn[0] == pytest.approx(drawn[2], abs=2)
    assert drawn[1] <= 1


def test_new_transitions_with_td_errors_get_priorities_from_them() -> None:
    replay = PrioritizedReplay(3, alpha=0.5, eps=1e-9)
    replay.add(numbered(0, 4), np.array([25.0, 1.0, -4.0, 9.0]))
    drawn = np.bincount(replay.sample(6000, np.random.default_rng(0)).actions, minlength=4)
    assert drawn.tolist() == pytest.approx([0, 1000, 2000, 3000], abs=2)
    replay.add(numbered(4, 1))
    assert replay.state()["priorities"][0] == pytest.approx(3.0), "the largest so far"


def test_overwritten_rows_take_the_new_priority() -> None:
    replay = PrioritizedReplay(2, alpha=1.0)
    replay.add(numbered(0, 2))
    replay.update_priorities(np.array([0, 1]), np.array([1e-9, 1.0]))
    replay.add(numbered(2, 1))  # takes row 0
    assert set(replay.sample(100, np.random.default_rng(0)).actions.tolist()) == {1, 2}


@pytest.mark.parametrize("capacity", [4, 6, 12])
def test_restored_priorities_belong_to_the_same_transitions(capacity: int) -> None:
    replay, restored = PrioritizedReplay(6, alpha=1.0), PrioritizedReplay(capacity, alpha=1.0)
    replay.add(numbered(0, 9))
    replay.update_priorities(np.arange(6), replay.take(np.arange(6)).actions.astype(float))  # transition i gets i
    restored.set_state(replay.state())
    batch = restored.sample(3000, np.random.default_rng(0))
    kept = np.arange(9 - min(capacity, 6), 9)
    np.testing.assert_allclose(np.bincount(batch.actions, minlength=9)[kept], 3000 * kept / kept.sum(), atol=3)
    if capacity == 6:
        again = replay.sample(3000, np.random.default_rng(0))
        np.testing.assert_array_equal(batch.actions, again.actions)


def test_what_was_stored_without_priorities_begins_with_equal_ones(caplog: pytest.LogCaptureFixture) -> None:
    uniform, restored = ReplayBuffer(6), PrioritizedReplay(4, alpha=1.0)
    uniform.add(numbered(0, 9))
    restored.set_state(uniform.state())
    assert "prioritized_replay=True" in caplog.text
    batch = restored.sample(4, np.random.default_rng(0))
    assert sorted(batch.actions) == [5, 6, 7, 8]
    assert (batch.extras["weights"] == 1).all()


@pytest.mark.parametrize("wrong", [{"alpha": 1.5}, {"beta": -0.1}, {"eps": 0.0}])
def test_settings_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        PrioritizedReplay(4, **wrong)
