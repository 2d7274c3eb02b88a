from __future__ import annotations

import numpy as np
import pytest

from reef.batch import Rollout, Sample
from reef.errors import ConfigError
from reef.replay.memory import ReplayMemory
from reef.replay.prioritized import PrioritizedReplay
from reef.replay.settings import OffPolicyConfig


def memory(prioritized: bool = True, **training: object) -> ReplayMemory:
    buffer = {"capacity": 64, "prioritized_replay": prioritized, "prioritized_replay_alpha": 1.0}
    return ReplayMemory(OffPolicyConfig().training(replay_buffer_config=buffer, **training).debugging(seed=0))


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


@pytest.mark.parametrize(
    ("intensity", "rounds", "updates"),
    [(None, [(0, 90), (90, 100), (100, 108), (108, 116)], [0, 1, 1, 1]), (16.0, [(100, 110), (110, 114)], [2, 1])],
)
def test_updates_follow_the_training_intensity(
    intensity: float | None, rounds: list[tuple[int, int]], updates: list[int]
) -> None:
    config = OffPolicyConfig().training(
        train_batch_size=64, training_intensity=intensity, num_steps_sampled_before_learning_starts=100
    )
    assert [config.updates_due(*steps) for steps in rounds] == updates


def test_no_update_is_lost_to_rounding() -> None:
    config = OffPolicyConfig().training(train_batch_size=32, training_intensity=7.0)
    steps = range(1000, 9000, 8)
    assert sum(config.updates_due(t, t + 8) for t in steps) == pytest.approx(8000 * 7 / 32, abs=1)


def test_learners_that_cannot_share_a_batch_are_refused() -> None:
    config = OffPolicyConfig().training(train_batch_size=33).resources(num_learner_workers=2)
    with pytest.raises(ConfigError, match="train_batch_size=33"):
        config.validate()


def test_buffer_settings_are_checked_and_merged() -> None:
    config = OffPolicyConfig().training(replay_buffer_config={"capacity": 9})
    assert config.replay_buffer_config.prioritized_replay_alpha == 0.6
    with pytest.raises(ConfigError, match=r"Did you mean 'capacity'\?"):
        OffPolicyConfig().training(replay_buffer_config={"capacty": 9})
    with pytest.raises(ConfigError, match=r"replay_buffer_config\.capacity=0"):
        OffPolicyConfig().training(replay_buffer_config={"capacity": 0}).validate()
