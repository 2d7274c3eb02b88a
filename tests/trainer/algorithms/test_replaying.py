"""Settings of algorithms that learn from replayed transitions."""

from __future__ import annotations

import gymnasium as gym
import pytest
import torch

from reef.algorithms.dqn import DQNConfig, DQNLearner
from reef.algorithms.replaying import OffPolicyConfig
from reef.errors import ConfigError


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


@pytest.mark.parametrize(("rows", "expected"), [(1, [[0]] * 3), (2, [[0], [1], [0]]), (7, [[0, 1], [2, 3], [4, 5]])])
def test_in_lockstep_a_batch_is_one_gradient_step_of_all_learners(rows: int, expected: list[list[int]]) -> None:
    config = DQNConfig().multi_agent(replay_mode="lockstep").training(train_batch_size=3).debugging(seed=0)
    spaces = gym.spaces.Box(-1, 1, (1,)), gym.spaces.Discrete(2)
    for rank in range(3):
        learner = DQNLearner(config, *spaces, rank=rank, world_size=3)
        found = [each["row"].tolist() for each in learner.minibatches({"row": torch.arange(rows)})]
        assert found == [expected[rank]]
