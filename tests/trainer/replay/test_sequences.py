"""Fragments become sequences that begin where the state is known, and that miss no step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reef.batch import Rollout, Transitions
from reef.nn.recurrent import SAMPLED_REWARDS
from reef.replay.sequences import SequenceCutter, SequenceLengths, count_steps


def fragment(first: int, steps: int = 4, columns: int = 2, **changes: Any) -> Rollout:
    """Observations count the steps from `first` on, plus 100 for each column; the state before is the first one."""
    counted = np.arange(first, first + steps + 1, dtype=np.float32)[:, None] + 100.0 * np.arange(columns)
    obs, none = counted[..., None].astype(np.float32), np.zeros((steps, columns), np.bool_)
    values = {
        "obs": obs[:-1],
        "actions": np.ones((steps, columns), np.int64),
        "rewards": np.ones((steps, columns), np.float32),
        "next_obs": obs[1:],
        "terminated": none.copy(),
        "truncated": none.copy(),
        "mask": ~none,
        "state_in": {"h": obs[0]},
    }
    return Rollout(**(values | changes))


def cut(cutter: SequenceCutter, count: int, steps: int = 4) -> list[Transitions]:
    found = [cutter.add(fragment(steps * index, steps), np.full(2, index)) for index in range(count)]
    return [one for one in found if one is not None]


@pytest.mark.parametrize(
    ("lengths", "firsts"),
    [
        (SequenceLengths(0, 4), [0, 4, 8, 12, 16, 20]),
        (SequenceLengths(0, 8), [0, 8, 16]),
        (SequenceLengths(3, 8), [0, 8]),
        (SequenceLengths(5, 10), [0, 8]),
        (SequenceLengths(16, 5), [0]),
    ],
)
def test_a_sequence_begins_with_a_fragment_and_the_next_one_leaves_out_no_step(
    lengths: SequenceLengths, firsts: list[int]
) -> None:
    found = cut(SequenceCutter(lengths), 6)
    assert [int(one.obs[0, 0, 0]) for one in found] == firsts
    for one in found:
        assert one.obs.shape == (2, lengths.total, 1) and one.extras["mask"].all()
        np.testing.assert_array_equal(one.extras["h"], one.obs[:, 0])
        np.testing.assert_array_equal(one.obs[:, 1:], one.next_obs[:, :-1])
        np.testing.assert_array_equal(one.obs[1] - one.obs[0], np.full((lengths.total, 1), 100.0))
    learned = {int(obs) for one in found for obs in one.obs[0, lengths.burn_in :, 0]}
    assert learned == {*range(lengths.burn_in, firsts[-1] + lengths.total)}


def test_sampled_rewards_go_with_those_that_are_learned_from() -> None:
    cutter = SequenceCutter(SequenceLengths(0, 8))
    restored = SequenceCutter(SequenceLengths(0, 8))
    cutter.add(fragment(0), np.zeros(2))
    restored.set_state(cutter.state())  # stored without
    sampled = {SAMPLED_REWARDS: np.full((4, 2), 5.0, np.float32)}
    found = restored.add(fragment(4, extras=sampled), np.ones(2))
    assert found is not None
    assert found.extras[SAMPLED_REWARDS][0].tolist() == [1, 1, 1, 1, 5, 5, 5, 5]
    assert found.rewards[0].tolist() == [1] * 8


def test_a_worker_that_is_replaced_begins_another_episode() -> None:
    cutter = SequenceCutter(SequenceLengths(0, 8))
    cutter.add(fragment(0), np.array([0, 5]))
    found = cutter.add(fragment(50), np.array([1, 0]))
    assert found is not None
    assert found.truncated[:, 3].tolist() == [False, True] and found.truncated.sum() == 1
    assert found.next_obs[1, 3] == 104.0, "the true successor"


def test_other_columns_than_before_begin_anew() -> None:
    cutter = SequenceCutter(SequenceLengths(0, 8))
    cutter.add(fragment(0))
    assert cutter.add(fragment(4, columns=3)) is None
    found = cutter.add(fragment(8, columns=3))
    assert found is not None and found.obs[:, 0, 0].tolist() == [4.0, 104.0, 204.0]


def test_steps_that_were_not_recorded_are_zeros_and_sequences_without_others_are_left_out() -> None:
    mask = np.array([[True, False], [False, False], [True, False], [True, True]])
    nothing = np.full((4, 2, 1), np.nan, np.float32)
    changes = {"mask": mask, "rewards": nothing[..., 0], "obs": nothing, "next_obs": nothing}
    found = SequenceCutter(SequenceLengths(1, 3)).add(fragment(0, **changes))
    assert found is not None and len(found) == 2 and count_steps(found) == 4
    assert count_steps(found, burn_in=1) == 3
    for name in ("obs", "next_obs", "rewards"):
        column = getattr(found, name)
        assert np.isnan(column[found.extras["mask"]]).all() and (column[~found.extras["mask"]] == 0).all()
    mask[3, 1] = False
    found = SequenceCutter(SequenceLengths(1, 3)).add(fragment(0, **changes))
    assert found is not None and len(found) == 1


def test_what_waits_is_in_the_state() -> None:
    one, two = (SequenceCutter(SequenceLengths(3, 8)) for _ in range(2))
    assert two.state() == {}
    cut(one, 5)
    two.set_state(one.state())
    for index in (5, 6, 7):
        expected, found = (each.add(fragment(4 * index), np.full(2, index)) for each in (one, two))
        assert (expected is None) == (found is None)
        if expected is not None and found is not None:
            np.testing.assert_array_equal(found.obs, expected.obs)
            np.testing.assert_array_equal(found.extras["h"], expected.extras["h"])
