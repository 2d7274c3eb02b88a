"""Guesses at what a misspelt name meant."""

import pytest

from reef.errors import nearest


@pytest.mark.parametrize(
    ("name", "choices", "meant"),
    [
        ("ppo", ["DQN", "PPO"], "PPO"),
        ("cartpole-v1", ["Acrobot-v1", "CartPole-v1"], "CartPole-v1"),
        ("episode_reward", ["episode_reward_min", "episode_reward_mean"], "episode_reward_mean"),
        ("Traning_Iteration", ["timesteps_total", "training_iteration"], "training_iteration"),
    ],
)
def test_the_nearest_name_is_meant_whatever_its_case(name: str, choices: list[str], meant: str) -> None:
    assert nearest(name, choices) == f" Did you mean {meant!r}?"


def test_nothing_is_guessed_from_afar() -> None:
    assert nearest("xyz", ["PPO", "DQN"]) == ""
