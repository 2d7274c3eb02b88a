"""What a client knows of an open episode, until it is sent."""

from __future__ import annotations

import pytest

from reef.errors import ConfigError, ExternalEpisodeError
from reef.external.episodes.reported import ReportedEpisode


def test_rewards_are_sent_with_the_next_observation() -> None:
    episode = ReportedEpisode(has_agents=False)
    (step,) = episode.steps("a", [1.0], None)
    episode.sent(step)
    for reward in (1.0, 0.5):
        episode.credit("a", reward, {})
    (step,) = episode.steps("a", [2.0], 1)
    assert (step.episode_id, step.agent_id, step.obs, step.reward, step.action) == ("a", None, [2.0], 1.5, 1)
    assert episode.steps("a", [2.0], 1)[0].reward == 1.5  # until it was sent
    episode.sent(step)
    assert episode.last_steps([3.0])[0].reward == 0.0


def test_an_agent_that_is_done_ends_with_the_next_observations() -> None:
    episode = ReportedEpisode(has_agents=True)
    for step in episode.steps("a", {"x": 1, "y": 2}, None):
        episode.sent(step)
    episode.credit("a", {"x": 3.0, "y": 4.0, "z": 5.0}, {"y": True, "x": False})
    steps = episode.steps("a", {"x": 6}, {"x": 0})
    assert [(step.agent_id, step.obs, step.reward, step.action, step.done) for step in steps] == [
        ("x", 6, 3.0, 0, False),
        ("y", None, 4.0, None, True),
    ]
    for step in steps:
        episode.sent(step)
    assert episode.ended == set()
    # what z got, which never acted, is sent in the end
    last = [(step.agent_id, step.obs, step.reward) for step in episode.last_steps({"x": 7, "unknown": 8})]
    assert last == [("x", 7, 0.0), ("z", None, 5.0)]


def test_what_is_refused_changes_nothing() -> None:
    episode = ReportedEpisode(has_agents=True)
    with pytest.raises(ConfigError, match="'x' never acted, or ended before"):
        episode.credit("a", {"x": 1.0}, {"x": True})
    with pytest.raises(ExternalEpisodeError, match="episode 'a', agent 'y': the reward is inf"):
        episode.credit("a", {"x": 1.0, "y": float("inf")}, {})
    assert (episode.rewards, episode.ended) == ({}, set())
