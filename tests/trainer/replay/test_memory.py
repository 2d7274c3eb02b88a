from __future__ import annotations

import numpy as np
import pytest

from reef.batch import TRANSITION_COLUMNS, Rollout, Sample
from reef.replay.memory import ReplayMemory
from reef.replay.prioritized import PrioritizedReplay
from reef.replay.settings import ReplayBufferConfig


def memory(prioritized: bool = True, n_step: int = 1) -> ReplayMemory:
    settings = ReplayBufferConfig(capacity=64, prioritized_replay=prioritized, prioritized_replay_alpha=1.0)
    return ReplayMemory(settings, n_step=n_step, gamma=0.99, seed=0)


def sample(first: int, steps: int = 2, worker: int = 0) -> Sample:
    number = np.arange(first, first + steps, dtype=np.float32)[:, None] + 100 * worker
    none = np.zeros(number.shape, np.bool_)
    rollout = Rollout(number[..., None], number, np.ones_like(number), number[..., None] + 1, none, none, ~none)
    return Sample({"default_policy": rollout}, [], steps, steps, worker)


def test_every_worker_has_steps_of_its_own_that_wait() -> None:
    remembered = memory(n_step=3)
    for first in (0, 2):
        for worker in (1, 2):
            remembered.add(sample(first, worker=worker))
    batch = remembered.sample(200)["default_policy"]
    found = dict(zip(batch.obs[:, 0].tolist(), batch.next_obs[:, 0].tolist(), strict=True))
    assert found == {100: 103, 101: 104, 200: 203, 201: 204}
    assert set(batch.rewards.tolist()) == {np.float32(1 + 0.99 + 0.99**2)}


def test_nothing_is_drawn_before_a_transition_is_complete() -> None:
    remembered = memory(n_step=3)
    remembered.add(sample(0))
    assert len(remembered) == 0
    assert remembered.sample(4) == {}


def test_priorities_reach_the_buffer() -> None:
    remembered = memory()
    remembered.add(sample(0, steps=4))
    remembered.update_priorities("default_policy", np.arange(4), np.array([0.0, 0.0, 9.0, 0.0]))
    assert set(remembered.sample(50)["default_policy"].obs[:, 0].tolist()) == {2}


def test_a_restored_memory_goes_on_the_same() -> None:
    one, two = memory(n_step=2), memory(n_step=2)
    one.add(sample(0, steps=5))
    one.sample(3)
    two.set_state(one.state())
    for remembered in (one, two):
        remembered.add(sample(5, steps=3))
    first, second = (remembered.sample(30)["default_policy"] for remembered in (one, two))
    np.testing.assert_array_equal(first.obs, second.obs)
    assert 4.0 in first.obs, "the step that waited when the state was taken"


def test_a_restored_memory_forgets_what_came_later() -> None:
    remembered = memory()
    empty = remembered.state()
    remembered.add(sample(0, steps=5))
    remembered.set_state(empty)
    assert (len(remembered), remembered.sample(3)) == (0, {})


def test_the_kind_of_buffer_follows_the_settings() -> None:
    kinds = []
    for prioritized in (True, False):
        remembered = memory(prioritized)
        remembered.add(sample(0))
        kinds.append(isinstance(remembered.buffers["default_policy"], PrioritizedReplay))
        assert ("weights" in remembered.sample(2)["default_policy"].extras) is prioritized
    assert kinds == [True, False]


def by_a_plain_loop(steps: Rollout, n: int, gamma: float, length: int) -> list[list[tuple[float, ...]]]:
    """By fragment of `length` steps: what it completes, each as obs, action, reward, successor, flags, discount.

    `steps` has one column.
    """
    fragments: list[list[tuple[float, ...]]] = [[] for _ in range(len(steps.rewards) // length)]
    for start in range(len(steps.rewards)):
        total, last = 0.0, start
        for k in range(n):
            last = start + k
            if last == len(steps.rewards):
                break  # the rest of it is not played yet
            total += gamma**k * steps.rewards[last, 0]
            ended = steps.terminated[last, 0] or steps.truncated[last, 0]
            if ended or k == n - 1:
                row = steps.obs[start, 0, 0], steps.actions[start, 0], total, steps.next_obs[last, 0, 0]
                flags = steps.terminated[last, 0], steps.truncated[last, 0]
                fragments[last // length].append((*map(float, (*row, *flags)), gamma ** (k + 1)))
                break
    return fragments


def played(worker: int, count: int) -> Rollout:
    """`count` steps in one column, with whole rewards; a quarter of them ends an episode, in one way or the other."""
    draw = np.random.default_rng(worker)
    number = np.arange(count, dtype=np.float32)[:, None] + 1000 * worker
    ends = draw.random((count, 1)) < 0.25
    terminated = ends & (draw.random((count, 1)) < 0.5)
    truncated = ends & ~terminated
    assert terminated.any() and truncated.any()
    after = number + np.where(ends, 0.5, 1.0).astype(np.float32)
    rewards = draw.integers(-9, 10, (count, 1)).astype(np.float32)
    return Rollout(number[..., None], -number, rewards, after[..., None], terminated, truncated, np.ones_like(ends))


@pytest.mark.parametrize("prioritized", [True, False])
def test_a_buffer_that_went_round_holds_the_newest_sums_of_a_plain_loop(prioritized: bool) -> None:
    length, gamma = 5, 0.5
    settings = ReplayBufferConfig(capacity=16, prioritized_replay=prioritized)
    remembered = ReplayMemory(settings, n_step=3, gamma=gamma, seed=0)
    streams = {worker: played(worker, 40) for worker in (1, 2)}
    expected: list[tuple[float, ...]] = []
    parts = {worker: by_a_plain_loop(stream, 3, gamma, length) for worker, stream in streams.items()}
    for index in range(8):
        for worker, stream in streams.items():
            cut = {
                name: getattr(stream, name)[length * index : length * (index + 1)].copy()
                for name in (*TRANSITION_COLUMNS, "mask")
            }
            remembered.add(Sample({"default_policy": Rollout(**cut)}, [], length, length, worker))
            expected += parts[worker][index]
            stored = remembered.buffers["default_policy"].state()
            columns = stored["columns"]
            names = ("obs", "actions", "rewards", "next_obs", "terminated", "truncated", "discounts")
            found = zip(*(columns[name].reshape(-1).astype(float).tolist() for name in names), strict=True)
            assert sorted(found) == sorted(expected[-16:])
    assert stored["added"] == len(expected) > 3 * 16
