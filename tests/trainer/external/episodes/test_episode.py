"""Episodes as they are recorded."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from applications import acted

from reef.external.episodes.episode import AgentObservation, ExternalEpisode, Played
from reef.external.episodes.steps import AgentSteps
from reef.types import ONLY_AGENT, AgentId


def obs(value: float) -> np.ndarray:
    return np.array([value], np.float32)


def step(
    episode: ExternalEpisode,
    agents: Iterable[AgentId],
    *,
    ends: Iterable[AgentId] = (),
    rewards: dict[AgentId, float] | None = None,
    last: float | None = None,
    cut_after: int = 100,
) -> Played | None:
    """A step in which these agents see its number, with action 0; those of `ends` see `last`."""
    given = rewards or {}
    asked = [
        asked_of(episode, agent, given.get(agent, 0.0), seen, ends=agent in ends)
        for group, seen in ((agents, obs(episode.length)), (ends, None if last is None else obs(last)))
        for agent in group
    ]
    return episode.record(asked, [None if each.ends else acted(version=episode.length) for each in asked], cut_after)


def asked_of(
    episode: ExternalEpisode, agent: AgentId, reward: float, seen: np.ndarray | None, *, ends: bool = True
) -> AgentObservation:
    steps = episode.agents.get(agent) or AgentSteps(str(agent), episode.learns)
    return AgentObservation(agent, steps, reward, seen, {}, None, ends)


def played(steps: int, learns: bool = True) -> ExternalEpisode:
    """An episode of one agent, whose reward of step t is t + 1."""
    episode = ExternalEpisode("a", learns)
    for t in range(steps):
        step(episode, [ONLY_AGENT], rewards={ONLY_AGENT: t})
    return episode


def test_the_end_gives_steps_with_their_successor() -> None:
    episode = played(3)
    found = episode.end([asked_of(episode, ONLY_AGENT, 3.0, obs(3))], truncated=False)
    (steps,) = found.fragments
    assert steps.obs[:, 0].tolist() == [0, 1, 2, 3]
    assert steps.rewards.tolist() == [1, 2, 3]
    assert (steps.terminated, steps.truncated, steps.version) == (True, False, 0)
    assert (found.env_steps, found.episode.reward, found.episode.length) == (3, 6, 3)
    assert found.episode.policy_rewards == {ONLY_AGENT: 6}


def test_an_episode_is_cut_once_it_is_long_enough_and_goes_on() -> None:
    episode = played(2)
    assert step(episode, [ONLY_AGENT], cut_after=3) is None
    first = step(episode, [ONLY_AGENT], cut_after=3)
    assert (len(first), first.env_steps, first.episode) == (3, 3, None)
    assert (first.fragments[0].terminated, first.fragments[0].truncated) == (False, False)
    found = episode.end([asked_of(episode, ONLY_AGENT, 4.0, obs(9))], truncated=True)
    (last,) = found.fragments
    assert last.obs[:, 0].tolist() == [3, 9]
    assert (last.rewards.tolist(), last.terminated, last.truncated, last.version) == ([4], False, True, 3)
    assert (found.env_steps, found.episode.reward, found.episode.length) == (1, 5, 4)


def test_nothing_is_kept_of_an_episode_that_is_not_learned_from() -> None:
    episode = played(5, learns=False)
    assert step(episode, [ONLY_AGENT], cut_after=1) is None
    assert episode.held == 0
    assert episode.end([asked_of(episode, ONLY_AGENT, 1.0, obs(5))], truncated=False) is None


def test_an_episode_without_a_step_gives_none() -> None:
    assert ExternalEpisode("a").end([], truncated=False) is None


def test_agents_come_and_go() -> None:
    episode = ExternalEpisode("a")
    step(episode, ["x"])
    step(episode, ["x", "y"], rewards={"x": 1.0, "y": 5.0})  # what y gets before it acts is the episode's alone
    gone = step(episode, ["y"], ends=["x"], rewards={"x": 2.0, "y": 3.0}, last=7.0)
    (of_x,) = gone.fragments
    assert (of_x.policy_id, of_x.obs[:, 0].tolist(), of_x.rewards.tolist()) == ("x", [0, 1, 7], [1, 2])
    assert (of_x.terminated, gone.env_steps) == (True, 2)
    step(episode, ["x"])  # it comes again
    found = episode.end([asked_of(episode, "x", 1.0, obs(8)), asked_of(episode, "y", 4.0, None)], truncated=False)
    parts = {steps.policy_id: steps for steps in found.fragments}
    assert (parts["x"].obs[:, 0].tolist(), parts["x"].rewards.tolist()) == ([3, 8], [1])
    assert (parts["y"].obs[:-1, 0].tolist(), parts["y"].rewards.tolist()) == ([1, 2], [3, 4])
    assert all(steps.terminated for steps in found.fragments)
    assert (found.env_steps, found.episode.length, found.episode.reward) == (2, 4, 16)
    assert found.episode.policy_rewards == {"x": 2, "y": 12}  # of x two have acted


def test_an_agent_s_step_lasts_until_it_acts_again() -> None:
    episode = ExternalEpisode("a")
    for agents in (["x"], ["y"], ["x"], ["y"]):
        step(episode, agents, rewards=dict.fromkeys(agents, 1.0))
    found = episode.end([asked_of(episode, "x", 1.0, obs(9))], truncated=True)
    parts = {steps.policy_id: steps for steps in found.fragments}
    assert parts["x"].obs[:, 0].tolist() == [0, 2, 9]
    # nobody knows what the last action of y led to
    assert (parts["y"].obs[:, 0].tolist(), parts["y"].truncated) == ([1, 3], True)
    assert (len(found), found.env_steps) == (3, 4)


@pytest.mark.parametrize("truncated", [True, False])
def test_an_end_that_nobody_sees_is_one_of_the_episode(truncated: bool) -> None:
    episode = ExternalEpisode("a")
    step(episode, ["x"])
    step(episode, [], ends=["x"])
    found = episode.end([], truncated=truncated)
    assert (found.fragments, found.env_steps, found.episode.length) == ([], 0, 1)
