from __future__ import annotations

import numpy as np

from reef.batch import Rollout, Sample
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
