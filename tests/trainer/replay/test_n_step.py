from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from reef.batch import TRANSITION_COLUMNS, Rollout, Transitions
from reef.replay.n_step import NStep, one_step, to_the_end, windows


def n_step(rollout: Rollout, n: int, gamma: float) -> Transitions:
    """The n-step transitions of one rollout; the steps before its end are summed over fewer than n steps."""
    if n == 1:
        return one_step(rollout, gamma)
    steps = {name: getattr(rollout, name) for name in TRANSITION_COLUMNS} | {"open": rollout.mask}
    closing = {name: np.zeros_like(column[:1]) for name, column in steps.items()}  # a dead step ends each column
    steps = {name: np.concatenate((column, closing[name])) for name, column in steps.items()}
    return windows(steps, n, np.power(gamma, np.arange(n + 1)).astype(np.float32))[0]


def rollout(
    rewards: list[list[float]],
    terminated: list[list[int]],
    truncated: list[list[int]],
    mask: list[list[int]] | None = None,
) -> Rollout:
    """Step t of column b has observation 10 b + t; where an episode ends, the successor is half a step later."""
    shape = np.shape(rewards)
    number = np.arange(shape[0])[:, None] + 10.0 * np.arange(shape[1])
    return Rollout(
        obs=number[..., None].astype(np.float32),
        actions=number.astype(np.int64),
        rewards=np.array(rewards, np.float32),
        next_obs=(number + np.where(np.logical_or(terminated, truncated), 0.5, 1.0))[..., None].astype(np.float32),
        terminated=np.array(terminated, np.bool_),
        truncated=np.array(truncated, np.bool_),
        mask=np.ones(shape, np.bool_) if mask is None else np.array(mask, np.bool_),
    )


def table(transitions: Transitions) -> dict[int, tuple[float, float, float, bool, bool]]:
    """Start -> (reward, successor, discount, terminated, truncated)."""
    columns = (
        transitions.rewards.tolist(),
        transitions.next_obs[:, 0].tolist(),
        transitions.extras["discounts"].tolist(),
        transitions.terminated.tolist(),
        transitions.truncated.tolist(),
    )
    starts = transitions.obs[:, 0].astype(int).tolist()
    assert len(set(starts)) == len(starts)
    assert transitions.actions.tolist() == starts
    return dict(zip(starts, zip(*columns, strict=True), strict=True))


def fragments(whole: Rollout, length: int) -> list[Rollout]:
    names = ("obs", "actions", "rewards", "next_obs", "terminated", "truncated", "mask")
    return [
        replace(whole, **{name: getattr(whole, name)[start : start + length].copy() for name in names})
        for start in range(0, whole.shape[0], length)
    ]


EPISODES = rollout(  # column 0 terminates at step 2, column 1 is truncated at step 4
    rewards=[[1, 10], [2, 20], [4, 30], [8, 40], [16, 50], [32, 60]],
    terminated=[[0, 0], [0, 0], [1, 0], [0, 0], [0, 0], [0, 0]],
    truncated=[[0, 0], [0, 0], [0, 0], [0, 0], [0, 1], [0, 0]],
)
HAND = {  # n = 3, gamma = 0.5
    0: (1 + 1 + 1, 2.5, 0.125, True, False),
    1: (2 + 2, 2.5, 0.25, True, False),
    2: (4, 2.5, 0.5, True, False),
    3: (8 + 8 + 8, 6.0, 0.125, False, False),
    10: (10 + 10 + 7.5, 13.0, 0.125, False, False),
    11: (20 + 15 + 10, 14.0, 0.125, False, False),
    12: (30 + 20 + 12.5, 14.5, 0.125, False, True),
    13: (40 + 25, 14.5, 0.25, False, True),
    14: (50, 14.5, 0.5, False, True),
}
CUT = {  # the end of the rollout
    4: (16 + 16, 6.0, 0.25, False, False),
    5: (32, 6.0, 0.5, False, False),
    15: (60, 16.0, 0.5, False, False),
}


def test_hand_numbers() -> None:
    assert table(n_step(EPISODES, 3, 0.5)) == HAND | CUT


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 6])
def test_fragments_of_any_length_give_the_same_and_lose_nothing(length: int) -> None:
    steps, found = NStep(3, 0.5), {}
    for fragment in fragments(EPISODES, length):
        new = table(steps.add(fragment))
        assert not found.keys() & new.keys()
        found |= new
    assert found == HAND


def test_random_episodes_agree_with_a_plain_loop() -> None:
    rng = np.random.default_rng(0)
    shape, n, gamma = (40, 3), 4, 0.9
    ends = rng.random(shape) < 0.2
    terminated = ends & (rng.random(shape) < 0.5)
    whole = rollout(rng.random(shape).tolist(), terminated.tolist(), (ends & ~terminated).tolist())
    number = np.arange(shape[0])[:, None] + 100.0 * np.arange(shape[1])
    whole = replace(whole, obs=number[..., None].astype(np.float32), actions=number.astype(np.int64))
    expected = {}
    for t, b in np.ndindex(*shape):
        total, k = 0.0, 0
        while t + k < shape[0] and k < n:
            total += gamma**k * whole.rewards[t + k, b]
            k += 1
            if ends[t + k - 1, b]:
                break
        expected[int(number[t, b])] = (total, float(gamma**k))
    found = {start: row[0:3:2] for start, row in table(n_step(whole, n, gamma)).items()}
    assert found.keys() == expected.keys()
    for start, row in expected.items():
        assert found[start] == pytest.approx(row, rel=1e-5)


@pytest.mark.parametrize("garbage", [99.0, np.nan])
def test_dead_steps_count_for_nothing_and_cut_a_column(garbage: float) -> None:
    whole = rollout(  # column 0: a dead step after the end; column 1: cut without an end
        rewards=[[1, 1], [2, 2], [garbage, garbage], [4, 4], [8, 8]],
        terminated=[[0, 0], [1, 0], [0, 0], [0, 0], [0, 0]],
        truncated=np.zeros((5, 2)).tolist(),
        mask=[[1, 1], [1, 1], [0, 0], [1, 1], [1, 1]],
    )
    expected = {
        0: (2.0, 1.5, 0.25, True, False),
        1: (2.0, 1.5, 0.5, True, False),
        3: (8.0, 5.0, 0.25, False, False),
        10: (2.0, 12.0, 0.25, False, False),
        11: (2.0, 12.0, 0.5, False, False),
        13: (8.0, 15.0, 0.25, False, False),
    }
    for length in (1, 2, 5):
        steps, found = NStep(2, 0.5), {}
        for fragment in fragments(whole, length):
            found |= table(steps.add(fragment))
        assert found == expected


def test_sums_to_the_end_are_those_of_as_many_steps_as_there_are() -> None:
    draws = np.random.default_rng(0)
    ends = draws.random((300, 2)) < 0.02
    terminated = ends & (draws.random(ends.shape) < 0.5)
    mask = draws.random(ends.shape) > 0.01
    whole = rollout(
        draws.random(ends.shape).tolist(), terminated.tolist(), (ends & ~terminated).tolist(), mask.tolist()
    )
    found, expected = to_the_end(whole, 0.99), n_step(whole, 400, 0.99)
    np.testing.assert_allclose(found.rewards, expected.rewards, rtol=1e-6)
    for name in ("obs", "actions", "next_obs", "terminated", "truncated"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    np.testing.assert_array_equal(found.extras["discounts"], expected.extras["discounts"])


def test_an_episode_of_fifty_thousand_steps_is_summed_in_seconds() -> None:
    """One pass over the steps, not one for each of them."""
    length = 50_000
    zeros = np.zeros((length, 1)).tolist()
    begun = time.process_time()
    found = to_the_end(rollout(np.ones((length, 1)).tolist(), zeros, zeros), 1.0)
    assert time.process_time() - begun < 3.0
    assert found.rewards.tolist() == list(range(length, 0, -1))


def test_one_step_is_the_rollout_itself() -> None:
    found = table(NStep(1, 0.5).add(EPISODES))
    assert len(found) == 12
    assert found[2] == (4.0, 2.5, 0.5, True, False)
    assert found[15] == (60.0, 16.0, 0.5, False, False)


def test_waiting_steps_survive_a_checkpoint_and_the_reuse_of_arrays() -> None:
    first, second = fragments(EPISODES, 3)
    steps, restored = NStep(3, 0.5), NStep(3, 0.5)
    steps.add(first)
    first.rewards[:] = first.obs[:] = 77  # the worker writes its next fragment there
    restored.set_state(steps.state())
    found = table(restored.add(second))
    assert found == {start: row for start, row in HAND.items() if start in (3, 11, 12, 13, 14)}


@pytest.mark.parametrize("fragment_index", [0, 9, 7])  # a replaced worker, a lost fragment, one from before a restore
def test_a_fragment_that_does_not_go_on_ends_the_steps_that_wait(fragment_index: int) -> None:
    first, _, third = fragments(EPISODES, 2)  # the second fragment is lost with its worker
    steps, restored = NStep(3, 0.5), NStep(3, 0.5)
    assert table(steps.add(first, np.array([7, 7]))) == {}
    restored.set_state(steps.state())
    found = table(restored.add(third, np.array([fragment_index, fragment_index])))
    assert found == {
        0: (2.0, 2.0, 0.25, False, True),
        1: (2.0, 2.0, 0.5, False, True),
        10: (20.0, 12.0, 0.25, False, True),
        11: (20.0, 12.0, 0.5, False, True),
        14: HAND[14],
    }


def test_an_observation_that_goes_on_by_chance_does_not_join_two_episodes() -> None:
    first, second, _ = fragments(EPISODES, 2)
    steps = NStep(3, 0.5)
    steps.add(first, np.array([0, 7]))
    found = table(steps.add(second, np.array([0, 8])))  # column 0 began anew, where the last one stopped
    assert found[0] == (2.0, 2.0, 0.25, False, True) and found[1] == (2.0, 2.0, 0.5, False, True)
    assert found[10] == HAND[10] and found[11] == HAND[11]


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("length", [2, 5])
def test_td_errors_are_those_of_the_sums_however_fragments_are_cut(n: int, length: int) -> None:
    """Of every transition r + gamma^k V(s') - Q(s, a), with V(s') 7 in every successor but where an episode ended."""
    whole = rollout([[1, 2]] * 10, [[0, 0]] * 4 + [[1, 0]] + [[0, 0]] * 5, [[0, 0]] * 7 + [[0, 1]] + [[0, 0]] * 2)
    chain = NStep(n, 0.5)
    found = {}
    for part in fragments(whole, length):
        part.extras.update(q_values=part.obs[..., 0] / 8, next_values=np.full(part.shape, 7.0, np.float32))
        transitions = chain.add(part)
        values = np.where(transitions.terminated, 0.0, 7.0) * transitions.extras["discounts"]
        expected = transitions.rewards + values - transitions.obs[:, 0] / 8
        np.testing.assert_allclose(transitions.extras["td_errors"], expected, rtol=1e-6)
        assert transitions.extras["td_errors"].dtype == np.float32
        found |= dict(zip(transitions.obs[:, 0].tolist(), transitions.terminated.tolist(), strict=True))
    assert len(found) == 20 - 2 * (n - 1) and any(found.values())


def test_steps_that_waited_without_values_have_no_td_error() -> None:
    """As after a restore of what was stored without them."""
    whole = rollout([[1]] * 8, [[0]] * 8, [[0]] * 8)
    first, second = fragments(whole, 4)
    chain = NStep(3, 0.5)
    chain.add(first)
    second.extras.update(q_values=second.rewards, next_values=second.rewards)
    assert "td_errors" not in chain.add(second).extras
    chain.add(first)
