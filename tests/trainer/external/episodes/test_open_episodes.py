"""Episodes in progress: how many there are, and how many steps they hold."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
import pytest
from applications import acted, client_of, observation

from reef import PolicyClient
from reef.errors import EpisodeLostError, ExternalEpisodeError, PolicyServerError
from reef.external import server
from reef.external.episodes import open_episodes
from reef.external.episodes.episode import AgentObservation
from reef.external.episodes.open_episodes import ClientLimits, OpenEpisodes
from reef.external.episodes.steps import AgentSteps
from reef.external.listening.refusals import BusyError
from reef.external.worker import ExternalWorker

Serve = Callable[..., ExternalWorker]
MOST = 20


def held(worker: ExternalWorker) -> int:
    """Steps that are kept in open episodes and in the queue."""
    return worker.source._server._episodes.held + worker.source.queue.steps


def begin(client: PolicyClient, episodes: int) -> list[str]:
    return [client.start_episode() for _ in range(episodes)]


def play(client: PolicyClient, episodes: list[str], steps: int) -> None:
    """As many steps of each, in turn."""
    for t in range(steps):
        for episode in episodes:
            client.get_action(episode, observation(0.01 * t))
            client.log_returns(episode, 1.0)


def test_open_episodes_are_cut_before_they_hold_more_steps_than_may_wait(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    worker = serve(rollout_fragment_length=1000, train_batch_size=1000, input_config={"max_queued_steps": MOST})
    client = client_of(worker)
    episodes = begin(client, 4)
    play(client, episodes, 5)  # not one is cut
    assert (worker.source.queue.steps, held(worker)) == (0, MOST)
    with caplog.at_level(logging.WARNING):
        play(client, episodes, 1)
    assert caplog.text.count("open episodes hold 20 steps, with max_queued_steps=20") == 1
    assert (worker.source.queue.steps, held(worker)) == (5, MOST + 4)  # one gave way for all
    played = 0
    for _ in range(50):  # much longer than all that may wait
        if worker.source.queue.steps > MOST // 2:
            played += worker.sample(worker.source.queue.steps).env_steps
        play(client, episodes, 1)
        assert held(worker) <= 2 * MOST + len(episodes)
    assert played + held(worker) == 4 * (6 + 50)
    while not worker.source.queue.is_full:
        play(client, episodes[:1], 1)
    with pytest.raises(PolicyServerError, match="the queue of steps is full"):
        play(client, begin(client, 1), 1)


def test_steps_that_were_cut_early_are_those_that_were_played(serve: Serve) -> None:
    worker = serve(rollout_fragment_length=1000, train_batch_size=1000, input_config={"max_queued_steps": 3})
    client = client_of(worker)
    (episode,) = begin(client, 1)
    for t in range(7):
        client.get_action(episode, observation(0.1 * t))
        client.log_returns(episode, t)
        if t in (3, 6):
            rollout = worker.sample(3).rollouts["default_policy"]
            assert rollout.rewards[:, 0].tolist() == [t - 3, t - 2, t - 1]
            assert rollout.truncated[:, 0].tolist() == [False, False, True]
            assert rollout.next_obs[:, 0, 0] == pytest.approx(0.1 * np.arange(t - 2, t + 1))


@pytest.mark.parametrize(("algorithm", "given"), [("PPO", {"batch_mode": "complete_episodes"}), ("PG", {})])
def test_whole_episodes_go_on_and_no_other_one_begins(serve: Serve, algorithm: str, given: dict[str, str]) -> None:
    worker = serve(algorithm, input_config={"max_queued_steps": MOST}, **given)
    client = client_of(worker)
    first, second, third = begin(client, 3)
    play(client, [first, second], MOST // 2)
    with pytest.raises(PolicyServerError, match="no other one begins until some end"):
        play(client, [third], 1)
    play(client, [first], 2)
    client.end_episode(first, observation())
    (third,) = begin(client, 1)
    play(client, [third], 1)
    assert worker.sample(12).episodes[0].length == 12
    assert held(worker) == MOST // 2 + 1


@pytest.mark.parametrize("algorithm", ["PPO", "PG"])
def test_an_application_with_several_episodes_does_not_wait_for_itself(
    serve: Serve, algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_episodes, "GOES_ON_S", 0.2)
    given = {"batch_mode": "complete_episodes"} if algorithm == "PPO" else {}
    worker = serve(algorithm, input_config={"max_queued_steps": MOST}, **given)
    client = client_of(worker, timeout_s=10.0)
    episodes = begin(client, 3)
    play(client, episodes[:2], MOST // 2)
    play(client, episodes, 1)  # the third begins although the others cannot end before
    both = [episodes[0], *begin(client, 1)]
    client.get_action(both, {episode: observation() for episode in both})  # one of them has begun
    assert held(worker) == MOST + 5


def test_episodes_without_an_application_do_not_hold_up_others(serve: Serve) -> None:
    worker = serve("PG", input_config={"max_queued_steps": MOST, "episode_timeout": 1.5})
    dead = client_of(worker)
    play(dead, begin(dead, 1), MOST)
    client = client_of(worker, timeout_s=30.0)
    play(client, begin(client, 1), 1)
    assert held(worker) == 1


def test_an_episode_is_found_by_its_id_until_it_is_dropped() -> None:
    episodes = OpenEpisodes(ClientLimits(episodes=2, episode_timeout_s=60.0, request_bytes=1, connections=1))
    own = episodes.start(None, learns=True)
    episodes.start("a", learns=True)
    with pytest.raises(BusyError, match="max_episodes=2 are open"):
        episodes.start("b", learns=True)
    assert episodes.found(own).episode_id == own
    episodes.drop(own)
    with pytest.raises(EpisodeLostError, match="is not open here"):
        episodes.found(own)
    with pytest.raises(ExternalEpisodeError, match="'a' is open already"):
        episodes.start("a", learns=True)


def test_the_steps_of_dropped_episodes_are_held_no_more() -> None:
    episodes = OpenEpisodes(ClientLimits(episodes=2, episode_timeout_s=60.0, request_bytes=1, connections=1))
    for name in ("a", "b"):
        episode = episodes.found(episodes.start(name, learns=True))
        for _ in range(3):
            with episodes.counted(episode):
                steps = episode.agents.setdefault("x", AgentSteps("p"))
                episode.record([AgentObservation("x", steps, 0.0, observation(), {}, None, False)], [acted()], 100)
    assert episodes.held == 6
    episodes.drop("a")
    assert episodes.held == 3
    episodes.found("b").used_at -= 61.0
    episodes.drop_idle()
    assert episodes.held == 0


def test_whole_episodes_are_cut_before_they_hold_all_memory(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "LONGEST", 10)
    worker = serve(batch_mode="complete_episodes", input_config={"max_queued_steps": MOST})
    client = client_of(worker)
    episodes = begin(client, 3)
    play(client, episodes, 10)
    assert (worker.source.queue.steps, held(worker)) == (0, MOST + 10)
    play(client, episodes, 1)
    assert (worker.source.queue.steps, held(worker)) == (10, MOST + 10 + 3)  # one was cut, which made room for all
    played = 0
    for turn in range(120):
        if worker.source.queue.steps:
            played += worker.sample(worker.source.queue.steps).env_steps
        play(client, [episodes[turn % 3]], 1)
        assert worker.source._server._episodes.held <= MOST + 10 + len(episodes)
    assert played + held(worker) == 3 * (11 + 40)


def test_whole_episodes_without_a_critic_end_before_they_hold_all_memory(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "LONGEST", 10)
    monkeypatch.setattr(open_episodes, "GOES_ON_S", 0.0)
    worker = serve("PG", input_config={"max_queued_steps": MOST})
    client = client_of(worker)
    episodes = begin(client, 3)
    play(client, episodes, 10)
    with pytest.raises(ExternalEpisodeError, match="open episodes hold 30 steps, which is the most: use_critic=False"):
        client.get_action(episodes[0], observation())
    with pytest.raises(PolicyServerError, match="open episodes hold the most steps: no other one begins"):
        play(client, begin(client, 1), 1)
    client.end_episode(episodes[0], observation())
    play(client, episodes[1:], 1)
    assert worker.sample(10).episodes[0].length == 10
