"""Episodes as they are recorded."""

from __future__ import annotations

import re

import numpy as np
import pytest
from applications import acted

from reef.errors import ExternalEpisodeError
from reef.external.episodes.episode import ExternalEpisode


def obs(value: int) -> np.ndarray:
    return np.array([value], np.float32)


def played(steps: int, learns: bool = True) -> ExternalEpisode:
    """An episode in which the reward of step t is t + 1, of two parts."""
    episode = ExternalEpisode("a", learns)
    for t in range(steps):
        episode.act(obs(t), acted(t, obs(10 * t), version=5 + t))
        episode.credit(t)
        episode.credit(1.0)
    return episode


def test_the_end_gives_steps_with_their_successor() -> None:
    steps = played(3).end(obs(3), truncated=False)
    assert steps.obs[:, 0].tolist() == [0, 1, 2, 3]
    assert steps.actions.tolist() == [0, 1, 2]
    assert steps.rewards.tolist() == [1, 2, 3]
    assert steps.dist_inputs[:, 0].tolist() == [0, 10, 20]
    assert (steps.terminated, steps.truncated, steps.version) == (True, False, 5)
    assert (steps.episode.reward, steps.episode.length, steps.episode.policy_rewards) == (6, 3, {"default_policy": 6})


def test_an_episode_is_cut_once_it_is_long_enough_and_goes_on() -> None:
    episode = played(2)
    assert episode.cut(obs(2), steps=3) is None
    first = episode.cut(obs(2), steps=2)
    assert (len(first), first.terminated, first.truncated, first.episode) == (2, False, False, None)
    episode.act(obs(2), acted(2, version=9))
    last = episode.end(obs(3), truncated=True)
    assert last.obs[:, 0].tolist() == [2, 3]
    assert (last.rewards.tolist(), last.terminated, last.truncated, last.version) == ([0], False, True, 9)
    assert (last.episode.reward, last.episode.length) == (3, 3)


def test_nothing_is_kept_of_an_episode_that_is_not_learned_from() -> None:
    episode = played(5, learns=False)
    assert episode.cut(obs(5), steps=1) is None
    assert episode.obs == episode.rewards == []
    assert episode.end(obs(5), truncated=False) is None


def test_an_episode_without_a_step_gives_none() -> None:
    assert ExternalEpisode("a").end(obs(0), truncated=False) is None


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), 1e39, -1e39])
def test_a_reward_is_a_finite_float32(reward: float) -> None:
    with pytest.raises(ExternalEpisodeError, match=f"the reward is {re.escape(str(reward))}, .* expected a finite"):
        played(1).check_reward(reward)


def test_the_sum_of_the_rewards_of_a_step_is_a_finite_float32() -> None:
    episode = played(1)
    episode.check_reward(3e38)
    episode.credit(3e38)
    with pytest.raises(ExternalEpisodeError, match="and 6e.38 with those before"):
        episode.check_reward(3e38)


def test_a_reward_needs_an_action_before_it() -> None:
    ExternalEpisode("a").check_reward(0.0)
    with pytest.raises(ExternalEpisodeError, match="a reward of 2 before the first action.*call get_action"):
        ExternalEpisode("a").check_reward(2.0)
