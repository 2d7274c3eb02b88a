"""Rewards and lengths of episodes are added up by environment and policy."""

from __future__ import annotations

import numpy as np
import pytest

from reef.rollout.episodes import EpisodeTracker


def tracker(envs: int = 2) -> EpisodeTracker:
    """Policy "a" acts for one agent of each environment, "b" for two."""
    return EpisodeTracker(envs, {"a": np.arange(envs), "b": np.repeat(np.arange(envs), 2)})


def test_an_episode_is_what_all_agents_got() -> None:
    one = tracker()
    for _ in range(3):
        one.add_rewards("a", np.array([1.0, 10.0], np.float32), None)
        one.add_rewards("b", np.array([2.0, 4.0, 20.0, 40.0], np.float32), None)
        one.lengths += 1
    episode = one.finish(0)
    assert (episode.reward, episode.length) == (21.0, 3)
    assert episode.policy_rewards == {"a": 3.0, "b": 9.0}  # of "b": the mean of its two agents
    assert (one.lengths.tolist(), one.rewards["a"].tolist()) == ([0, 3], [0.0, 30.0])


def test_steps_that_count_for_nothing_add_nothing() -> None:
    one = tracker()
    one.add_rewards("a", np.array([1.0, 10.0], np.float32), np.array([False, True]))
    assert one.rewards["a"].tolist() == [0.0, 10.0]


def test_a_broken_episode_is_forgotten() -> None:
    one = tracker()
    one.add_rewards("b", np.ones(4, np.float32), None)
    one.lengths += 1
    one.forget(1)
    assert (one.lengths.tolist(), one.rewards["b"].tolist()) == ([1, 0], [1.0, 1.0, 0.0, 0.0])
    one.forget_all()
    assert (one.lengths.tolist(), one.rewards["b"].tolist()) == ([0, 0], [0.0] * 4)


@pytest.mark.parametrize("envs", [1, 2, 3])
def test_its_state_goes_as_far_as_there_are_environments(envs: int) -> None:
    one, other = tracker(), tracker(envs)
    one.add_rewards("a", np.array([1.0, 10.0], np.float32), None)
    one.lengths += 7
    other.set_state(one.state())
    assert other.rewards["a"].tolist() == [1.0, 10.0, 0.0][:envs]
    assert other.lengths.tolist() == [7, 7, 0][:envs]
