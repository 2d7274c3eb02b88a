"""`PolicyClient` in both modes.

With it reef.external.connection, reef.external.acting, reef.external.local_acting and reef.external.fragments.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import numpy as np
import pytest
from applications import address, client_of, observation, settings
from gymnasium import spaces

from reef import PolicyClient
from reef.errors import ConfigError, EpisodeLostError, ExternalEpisodeError, PolicyServerError
from reef.external import worker as external_worker
from reef.external.connection import Connection
from reef.external.worker import ExternalWorker

Serve = Callable[..., ExternalWorker]
MODES = ["remote", "local"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("algorithm", ["PPO", "DQN"])
def test_an_episode_becomes_the_rollout_that_was_played(serve: Serve, mode: str, algorithm: str) -> None:
    worker = serve(algorithm)
    client = client_of(worker, mode)
    episode = client.start_episode()
    actions = []
    for t in range(5):
        actions.append(client.get_action(episode, observation(0.1 * t)))
        client.log_returns(episode, t)
        client.log_returns(episode, 0.5)
    client.get_action(episode, observation(0.5))  # of which no reward is reported
    client.end_episode(episode, observation(0.6))
    sample = worker.sample(6)
    rollout = sample.rollouts["default_policy"]
    assert rollout.obs[:, 0, 0] == pytest.approx(0.1 * np.arange(6))
    assert rollout.next_obs[:, 0, 0] == pytest.approx(0.1 * np.arange(1, 7))
    assert rollout.actions[:5, 0].tolist() == actions
    assert rollout.rewards[:, 0].tolist() == [0.5, 1.5, 2.5, 3.5, 4.5, 0.0]
    assert rollout.terminated[:, 0].tolist() == 5 * [False] + [True]
    assert rollout.truncated[:, 0].tolist() == [False, False, False, True, False, False]  # fragments have 4 steps
    assert [(each.reward, each.length) for each in sample.episodes] == [(12.5, 6)]
    assert (sample.env_steps, sample.progress) == (6, 6)


@pytest.mark.parametrize("mode", MODES)
def test_the_distribution_is_recorded_as_a_sampled_step_s_is(serve: Serve, mode: str) -> None:
    worker = serve()
    client = client_of(worker, mode)
    episode = client.start_episode()
    actions = [client.get_action(episode, observation(0.3)) for _ in range(4)]
    client.end_episode(episode, observation())
    rollout = worker.sample(4).rollouts["default_policy"]
    distribution, _ = worker.runners["default_policy"].policy.act(rollout.obs[:, 0], {})
    assert rollout.extras["action_dist_inputs"][:, 0] == pytest.approx(distribution.inputs, abs=1e-5)
    assert rollout.extras["action_logp"][:, 0] == pytest.approx(distribution.logp(np.array(actions)), abs=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_actions_are_explored(serve: Serve, mode: str) -> None:
    def actions(**given: Any) -> set[int]:
        client = client_of(serve(**given), mode)
        episode = client.start_episode()
        return {client.get_action(episode, observation(0.1)) for _ in range(40)}

    assert actions() == {0, 1}
    assert len(actions(explore=False)) == 1


@pytest.mark.parametrize("mode", MODES)
def test_an_action_of_the_application_is_learned_from_as_it_was(serve: Serve, mode: str) -> None:
    space = spaces.Box(np.array([0.0, -10.0], np.float32), np.array([4.0, 10.0], np.float32))
    worker = serve(action_space=space)
    client = client_of(worker, mode)
    episode = client.start_episode()
    assert client.log_action(episode, observation(), [1.0, 5.0]) is None
    client.log_returns(episode, 1.0)
    client.end_episode(episode, observation())
    rollout = worker.sample(1).rollouts["default_policy"]
    assert rollout.actions[0, 0].tolist() == [-0.5, 0.5]  # as the policy would have chosen it
    distribution, _ = worker.runners["default_policy"].policy.act(rollout.obs[0], {})
    assert rollout.extras["action_logp"][0] == pytest.approx(distribution.logp(rollout.actions[0]), abs=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_an_action_outside_of_its_bounds_is_refused(serve: Serve, mode: str) -> None:
    client = client_of(serve(action_space=spaces.Box(-1, 1, (1,))), mode)
    episode = client.start_episode()
    for action in (1e30, -1.001):
        with pytest.raises(
            ConfigError, match=rf"no value of Box.*: {action:g} is outside of its bounds".replace("+", r"\+")
        ):
            client.log_action(episode, observation(), [action])
    client.log_action(episode, observation(), [1.0])


@pytest.mark.parametrize("mode", MODES)
def test_what_makes_the_network_overflow_is_refused_and_the_episode_goes_on(serve: Serve, mode: str) -> None:
    model = {"fcnet_hiddens": [8], "fcnet_activation": "relu"}
    worker = serve(observation_space=spaces.Box(-np.inf, np.inf, (3,), np.float32), model=model)
    worker.set_weights({name: np.full_like(values, 1e10) for name, values in worker.get_weights().items()})
    client = client_of(worker, mode)
    episode = client.start_episode()
    for call in (client.get_action, lambda *given: client.log_action(*given, 1)):
        with pytest.raises(ConfigError, match="network's outputs for the observation are NaN or infinite"):
            call(episode, observation(3e38))
    assert client.get_action(episode, observation()) in (0, 1)


@pytest.mark.parametrize("mode", MODES)
def test_actions_have_the_form_of_their_space(serve: Serve, mode: str) -> None:
    box = spaces.Box(np.full(2, 4.0, np.float32), np.full(2, 6.0, np.float32))
    space = spaces.Dict({"move": box, "press": spaces.Discrete(3, start=5)})
    observed = spaces.Dict({"place": spaces.Box(-1, 1, (2,)), "mode": spaces.Discrete(2)})
    worker = serve(action_space=space, observation_space=observed)
    client = client_of(worker, mode)
    episode = client.start_episode()
    obs = {"place": np.array([0.25, 0.5], np.float32), "mode": np.int64(1)}
    action = client.get_action(episode, obs)
    assert action.keys() == {"move", "press"}
    assert box.contains(np.clip(action["move"], 4, 6))
    assert action["press"] in (5, 6, 7)
    client.log_action(episode, obs, action)
    client.end_episode(episode, obs)
    rollout = worker.sample(2).rollouts["default_policy"]
    assert rollout.obs[:, 0].tolist() == 2 * [rollout.obs[0, 0].tolist()]
    assert sorted(rollout.obs[0, 0].tolist()) == [0.25, 0.5, 1.0]
    (*moved, pressed), reported = rollout.actions[0, 0], rollout.actions[1, 0]
    assert [*np.clip(moved, -1, 1), pressed] == pytest.approx(reported, abs=1e-5)  # what was done, within its bounds


@pytest.mark.parametrize("mode", MODES)
def test_an_action_that_the_mask_excludes_is_neither_chosen_nor_learned_from(serve: Serve, mode: str) -> None:
    worker = serve(observation_space=spaces.Dict({"action_mask": spaces.MultiBinary(2), "at": spaces.Box(-1, 1, (1,))}))
    client = client_of(worker, mode)
    episode = client.start_episode()

    def seen(*mask: int) -> dict[str, Any]:
        return {"action_mask": np.array(mask, np.int8), "at": [0.5]}

    assert {client.get_action(episode, seen(0, 1)) for _ in range(20)} == {1}
    client.log_action(episode, seen(1, 0), 0)
    with pytest.raises(ConfigError, match="'action_mask' in the observation excludes the action: report one that"):
        client.log_action(episode, seen(0, 1), 0)
    with pytest.raises(ConfigError, match="'action_mask' in the observation excludes every action: allow one"):
        client.get_action(episode, seen(0, 0))
    client.end_episode(episode, seen(0, 0))
    rollout = worker.sample(21).rollouts["default_policy"]
    assert np.isfinite(rollout.extras["action_logp"]).all()
    assert rollout.actions[:, 0].tolist() == 20 * [1] + [0]


@pytest.mark.parametrize("mode", MODES)
def test_connectors_are_between_application_and_policy(serve: Serve, mode: str) -> None:
    worker = serve(env_to_module_connector=np.square, module_to_env_connector="applications:opposite")
    client = client_of(worker, mode)
    episode = client.start_episode()
    actions = [client.get_action(episode, observation(0.5)) for _ in range(4)]
    with pytest.raises(ConfigError, match="cannot be known with module_to_env_connector"):
        client.log_action(episode, observation(), 0)
    client.end_episode(episode, observation())
    rollout = worker.sample(4).rollouts["default_policy"]
    assert (rollout.obs == 0.25).all()
    assert rollout.actions[:, 0].tolist() == [1 - action for action in actions]


@pytest.mark.parametrize("mode", MODES)
def test_a_list_of_episodes_gets_a_mapping_of_actions(serve: Serve, mode: str) -> None:
    client = client_of(serve(), mode)
    ids = [client.start_episode() for _ in range(3)]
    actions = client.get_action(ids, {episode: observation(0.1) for episode in ids})
    assert list(actions) == ids
    assert set(actions.values()) <= {0, 1}
    with pytest.raises(ConfigError, match="give a mapping {id: observation} with the same ids"):
        client.get_action(ids, {ids[0]: observation()})
    with pytest.raises(ConfigError, match="has an id twice. Ask for one action of each episode at a time"):
        client.get_action([ids[0], ids[0]], {ids[0]: observation()})


@pytest.mark.parametrize("mode", MODES)
def test_nobody_learns_from_an_episode_without_training(serve: Serve, mode: str) -> None:
    worker = serve()
    client = client_of(worker, mode)
    episode = client.start_episode("watched", training_enabled=False)
    assert episode == "watched"
    for _ in range(10):
        client.get_action(episode, observation())
        client.log_returns(episode, 1.0)
    client.end_episode(episode, observation())
    sample = worker.sample(1)
    assert (sample.rollouts, sample.episodes, sample.env_steps) == ({}, [], 0)


@pytest.mark.parametrize("mode", MODES)
def test_an_episode_may_be_cut_off(serve: Serve, mode: str) -> None:
    worker = serve()
    client = client_of(worker, mode)
    episode = client.start_episode()
    client.get_action(episode, observation())
    client.end_episode(episode, observation(0.7), truncated=True)
    rollout = worker.sample(1).rollouts["default_policy"]
    assert (rollout.terminated.item(), rollout.truncated.item()) == (False, True)
    assert rollout.next_obs[0, 0, 0] == pytest.approx(0.7)


@pytest.mark.parametrize("mode", MODES)
def test_whole_episodes_are_not_cut(serve: Serve, mode: str) -> None:
    worker = serve(batch_mode="complete_episodes")
    client = client_of(worker, mode)
    episode = client.start_episode()
    for _ in range(9):
        client.get_action(episode, observation())
    assert worker.sample(1).env_steps == 0
    client.end_episode(episode, observation())
    rollout = worker.sample(1).rollouts["default_policy"]
    assert rollout.done[:, 0].tolist() == 8 * [False] + [True]


@pytest.mark.parametrize("mode", MODES)
def test_wrong_use_is_refused_and_the_episode_goes_on(serve: Serve, mode: str) -> None:
    worker = serve()
    client = client_of(worker, mode)
    episode = client.start_episode("a")
    with pytest.raises(ExternalEpisodeError, match="episode 'a' is open already"):
        client.start_episode("a")
    with pytest.raises(ExternalEpisodeError, match="a reward of 1 before the first action"):
        client.log_returns(episode, 1.0)
    client.get_action(episode, observation())
    for reward in (float("nan"), 1e39):
        with pytest.raises(ExternalEpisodeError, match="expected a finite number of float32"):
            client.log_returns(episode, reward)
    with pytest.raises(ConfigError, match=r"shape \(1,\), expected \(3,\)"):
        client.get_action(episode, [0.0])
    with pytest.raises(ConfigError, match="the action is no value of Discrete"):
        client.log_action(episode, observation(), 7)
    with pytest.raises(ConfigError, match="log_action: action is None"):
        client.log_action(episode, observation(), None)
    client.log_returns(episode, 2.0)
    client.end_episode(episode, observation())
    assert worker.sample(1).rollouts["default_policy"].rewards.tolist() == [[2.0]]
    for call in (client.get_action, client.end_episode):
        with pytest.raises(ExternalEpisodeError, match="episode 'a' is not open: it was never started here"):
            call("a", observation())
    with pytest.raises(ExternalEpisodeError, match="episode 'b' is not open"):
        client.log_returns("b", 1.0)


def test_what_has_no_effect_is_refused(serve: Serve) -> None:
    client = client_of(serve())
    episode = client.start_episode()
    client.log_returns(episode, 0.0, {}, {})
    with pytest.raises(ConfigError, match="info={'lives': 3} has no effect"):
        client.log_returns(episode, 0.0, {"lives": 3})
    with pytest.raises(ConfigError, match="an episode has one agent here. Leave it out, or give the server policies"):
        client.log_returns(episode, 0.0, None, {"agent": True})
    with pytest.raises(ConfigError, match="with inference_mode='remote' the server acts. Use 'local'"):
        client.update_policy_weights()
    with pytest.raises(ConfigError, match="it cannot be sent: a object cannot be sent: give arrays"):
        client.get_action(episode, object())


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"inference_mode": "both"}, "inference_mode='both': expected 'local' or 'remote'"),
        ({"update_interval": -1.0}, "update_interval=-1.0: expected seconds, or None"),
        ({"update_interval": 5.0, "inference_mode": "remote"}, "update_interval=5.0: with inference_mode='remote' the"),
        ({"timeout_s": float("nan")}, "timeout_s=nan: expected seconds from 0 on"),
        ({"timeout_s": -1}, "timeout_s=-1: expected seconds"),
        ({"timeout_s": "1"}, "timeout_s='1': expected seconds"),
        ({"address": "ftp://here"}, "address='ftp://here': expected the form 'http://host:port'"),
        ({"address": "http://here/there"}, "expected the form"),
        ({"address": ":9900"}, "expected the form"),
    ],
)
def test_wrong_arguments_are_value_errors(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as found:
        PolicyClient(**{"address": "http://127.0.0.1:1"} | given)
    assert isinstance(found.value, ConfigError)


@pytest.mark.parametrize("mode", MODES)
def test_a_server_that_is_not_there_is_asked_for_a_while(mode: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    started = time.monotonic()
    with pytest.raises(PolicyServerError, match=f"http://127.0.0.1:{port}: it does not answer.*Asked for 0.3 s"):
        PolicyClient(f"127.0.0.1:{port}", mode, timeout_s=0.3).start_episode()
    assert time.monotonic() - started < 10


def test_a_busy_server_is_asked_again(serve: Serve) -> None:
    worker = serve(input_config={"max_queued_steps": 4})
    client = client_of(worker, timeout_s=30.0)
    episode = client.start_episode()
    for _ in range(5):
        client.get_action(episode, observation())
    threading.Timer(0.3, worker.sample, [4]).start()
    assert client.get_action(episode, observation()) in (0, 1)
    impatient = client_of(worker)
    for _ in range(3):  # the last one cuts four steps again
        client.get_action(episode, observation())
    with pytest.raises(PolicyServerError, match="the queue of steps is full.*Asked for 0.5 s"):
        other = impatient.start_episode()
        impatient.get_action(other, observation())


@pytest.mark.parametrize("mode", MODES)
def test_a_request_whose_answer_was_lost_is_done_once(serve: Serve, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    once, lost = Connection._once, []

    def answer_lost(self: Connection, *sent: Any) -> Any:
        answer = once(self, *sent)
        if lost.append(sent) or len(lost) % 2:  # each first answer
            raise ConnectionResetError
        return answer

    worker = serve()
    monkeypatch.setattr(Connection, "_once", answer_lost)
    client = client_of(worker, mode, timeout_s=30.0)
    episode = client.start_episode("a")
    for _ in range(6):
        client.get_action(episode, observation())
        client.log_returns(episode, 1.0)
    client.end_episode(episode, observation())
    sample = worker.sample(20)
    assert sample.env_steps == 6
    assert sample.rollouts["default_policy"].rewards[:, 0].tolist() == 6 * [1.0]
    assert [(each.reward, each.length) for each in sample.episodes] == [(6.0, 6)]


def test_a_token_is_sent(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLICY_TOKEN", "secret")
    worker = serve(input_config={"token_env": "POLICY_TOKEN"})
    assert client_of(worker, token="secret").start_episode()
    with pytest.raises(PolicyServerError, match="answered 401: the token is missing or wrong"):
        client_of(worker).start_episode()
    monkeypatch.setenv("REEF_POLICY_TOKEN", "secret")
    assert client_of(worker, "local").start_episode()


def test_an_error_of_the_server_is_raised_with_its_traceback(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = serve()
    client = client_of(worker)
    episode = client.start_episode()
    monkeypatch.setattr(worker.runners["default_policy"], "choose", lambda *_: 1 / 0)
    with pytest.raises(PolicyServerError, match="(?s)answered 500: Traceback.*ZeroDivisionError"):
        client.get_action(episode, observation())


def test_an_episode_is_lost_with_its_server_and_the_next_begins(serve: Serve) -> None:
    first = serve()
    port = first.source.port
    client = client_of(first, timeout_s=30.0)
    episode = client.start_episode("lost")
    client.get_action(episode, observation())
    first.stop()
    second = serve(input_config={"port": port})
    with pytest.raises(EpisodeLostError, match="episode 'lost' is not open here.*or the server was started again"):
        client.get_action(episode, observation())
    with pytest.raises(ExternalEpisodeError, match="or was lost with its server"):
        client.log_returns(episode, 1.0)
    episode = client.start_episode("lost")
    client.get_action(episode, observation())
    client.end_episode(episode, observation())
    assert second.sample(1).env_steps == 1


def test_a_client_that_acts_by_itself_survives_a_restart_of_the_server(serve: Serve) -> None:
    first = serve()
    client = client_of(first, "local", timeout_s=30.0)
    episode = client.start_episode()
    client.get_action(episode, observation())
    first.stop()
    second = serve(input_config={"port": first.source.port})
    client.get_action(episode, observation())
    client.end_episode(episode, observation())
    assert second.sample(2).env_steps == 2


def published(worker: ExternalWorker, version: int) -> None:
    """Publish weights with which action 1 is certain."""
    policy = worker.runners["default_policy"].policy
    weights = policy.get_weights()
    weights["pi.bias"] = np.array([-50.0, 50.0], np.float32)
    policy.set_weights(weights)
    worker.set_weights(worker.get_weights(), version, 0)


def actions_of(client: PolicyClient) -> set[int]:
    episode = client.start_episode()
    return {client.get_action(episode, observation(0.1)) for _ in range(30)}


@pytest.mark.parametrize(("interval", "updated"), [(None, False), (1000.0, False), (0.0, True)])
def test_weights_are_fetched_after_the_interval_or_by_hand(serve: Serve, interval: Any, updated: bool) -> None:
    worker = serve()
    client = client_of(worker, "local", update_interval=interval)
    assert actions_of(client) == {0, 1}
    published(worker, version=1)
    client._acts._took_s = 1000.0  # as if it took long: only the interval counts
    assert actions_of(client) == ({1} if updated else {0, 1})
    client.update_policy_weights()
    assert actions_of(client) == {1}


def test_weights_are_fetched_as_soon_as_a_fragment_s_answer_names_newer_ones(serve: Serve) -> None:
    worker = serve()
    client = client_of(worker, "local", update_interval=1000.0)
    assert actions_of(client) == {0, 1}  # in more than one fragment
    published(worker, version=1)
    client._acts._took_s = 1000.0  # little of the time is to go there
    assert actions_of(client) == {0, 1}
    client._acts._took_s = 0.0
    assert actions_of(client) == {1}
    assert client._acts._version == 1


def test_the_version_of_the_weights_that_acted_is_recorded(serve: Serve) -> None:
    worker = serve()
    published(worker, version=7)
    for client in (client_of(worker, "local"), client_of(worker)):
        episode = client.start_episode()
        client.get_action(episode, observation())
        client.end_episode(episode, observation())
        assert worker.sample(1).rollouts["default_policy"].policy_version == 7


def test_a_filter_is_for_remote_inference(serve: Serve) -> None:
    worker = serve(observation_filter="MeanStdFilter")
    with pytest.raises(ConfigError, match="observation_filter='MeanStdFilter'.*Use inference_mode='remote'"):
        client_of(worker, "local")
    client = client_of(worker)
    episode = client.start_episode()
    for value in (0.0, 0.5, 1.0):
        client.get_action(episode, observation(value))
    client.end_episode(episode, observation())
    rollout = worker.sample(3).rollouts["default_policy"]
    assert rollout.obs[2, 0, 0] == pytest.approx(1.0, abs=0.1)  # half a range above the mean, by the deviation 0.5


@pytest.mark.parametrize("given", [{}, {"batch_mode": "complete_episodes"}])
def test_a_fragment_fits_into_a_request(serve: Serve, given: dict[str, Any]) -> None:
    limits = {"max_request_bytes": 2000}
    worker = serve(rollout_fragment_length=1000, train_batch_size=1000, input_config=limits, **given)
    client = client_of(worker, "local")
    episode = client.start_episode()
    for _ in range(50):
        client.get_action(episode, observation())
    client.end_episode(episode, observation())
    assert worker.sample(50).env_steps == 50


@pytest.mark.parametrize("mode", MODES)
def test_without_a_critic_an_episode_is_whole_or_refused(
    serve: Serve, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external_worker, "LONGEST", 10)
    worker = serve("PG")
    client = client_of(worker, mode)
    episode = client.start_episode("long")
    for _ in range(10):
        client.get_action(episode, observation())
        client.log_returns(episode, 1.0)
    with pytest.raises(ExternalEpisodeError, match="'long' has 10 steps, which is the most: use_critic=False learns"):
        client.get_action(episode, observation())
    assert worker.sample(1).env_steps == 0
    client.end_episode(episode, observation())
    rollout = worker.sample(1).rollouts["default_policy"]
    assert rollout.terminated[:, 0].tolist() == 9 * [False] + [True]
    assert rollout.rewards.sum() == 10


def test_without_a_critic_an_episode_that_is_larger_than_a_request_is_refused(serve: Serve) -> None:
    client = client_of(serve("PG", input_config={"max_request_bytes": 2000}), "local")
    episode = client.start_episode()
    with pytest.raises(ExternalEpisodeError, match="raise max_request_bytes for a client with 'local'"):
        for _ in range(50):
            client.get_action(episode, observation())
    client.end_episode(episode, observation())


@pytest.mark.parametrize("end", [True, False])
def test_an_episode_whose_steps_are_refused_is_lost(serve: Serve, end: bool) -> None:
    worker = serve(input_config={"max_request_bytes": 100})
    client = client_of(worker, "local")
    client._acts.policies.fragment_length = 4
    episode = client.start_episode()
    for _ in range(4):
        client.get_action(episode, observation())
    with pytest.raises(EpisodeLostError, match="steps of the episode were refused, and it is lost: .* answered 413"):
        (client.end_episode if end else client.get_action)(episode, observation())
    with pytest.raises(ExternalEpisodeError, match="is not open: it was never started here"):
        client.get_action(episode, observation())
    assert client.start_episode(episode) == episode


@contextmanager
def answering(*statuses: int) -> Iterator[str]:
    """A server that has these statuses one after the other; yields its address."""
    left = list(statuses)

    class Other(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(left.pop(0))
            self.send_header("Retry-After", "Fri, 31 Dec 1999 23:59:59 GMT")
            self.end_headers()
            self.wfile.write(b"<html>")

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
    assert not left


def test_another_server_is_found_out() -> None:
    with answering(200) as place:
        client = PolicyClient(place, "remote", timeout_s=1.0)
        with pytest.raises(PolicyServerError, match="no EpisodeStarted message.*Is it one of Reef?"):
            client.start_episode()


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_server_that_a_proxy_does_not_reach_is_asked_again(status: int) -> None:
    with answering(status, 400) as place, pytest.raises(ConfigError, match="answered 400"):
        PolicyClient(place, "remote", timeout_s=30.0).start_episode()


@pytest.mark.parametrize("status", [408, 413])
def test_a_request_that_is_too_slow_or_too_large_is_a_wrong_value(status: int) -> None:
    with answering(status) as place, pytest.raises(ConfigError, match=f"answered {status}"):
        PolicyClient(place, "remote").start_episode()


def test_settings_that_a_client_gets_hold_nothing_else(serve: Serve) -> None:
    worker = serve(output_config={"format": "json"}, log_level="INFO")
    client = client_of(worker, "local")
    sent = client._acts.policies.config
    assert sent.model == settings().model
    assert (sent.seed, sent.log_level, sent.input_config) == (None, None, {})


def test_a_client_whose_server_acts_loads_neither_torch_nor_gymnasium(serve: Serve) -> None:
    worker = serve()
    program = f"""
import sys
from reef import PolicyClient
client = PolicyClient({address(worker)!r}, "remote")
episode = client.start_episode()
client.get_action(episode, [0.0, 0.0, 0.0])
client.end_episode(episode, [0.0, 0.0, 0.0])
client.close()
print(*{{name.split(".")[0] for name in sys.modules}} & {{"torch", "ray", "gymnasium", "aiohttp"}})
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (found.stdout.strip(), found.stderr) == ("", "")
    assert worker.sample(1).env_steps == 1


def test_the_death_of_a_client_costs_nothing(serve: Serve) -> None:
    worker = serve(input_config={"episode_timeout": 2.0, "max_episodes": 1, "idle_timeout": 30.0})
    program = f"""
from reef import PolicyClient
client = PolicyClient({address(worker)!r}, "remote")
episode = client.start_episode()
print("started", flush=True)
while True:
    client.get_action(episode, [0.0, 0.0, 0.0])
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "started\n"
        assert worker.sample(4).env_steps >= 4
        process.kill()
    other = client_of(worker, timeout_s=30.0)
    episode = other.start_episode()  # once the episode of the dead client is dropped
    other.get_action(episode, observation())
    other.end_episode(episode, observation())
    while not (sample := worker.sample(1)).episodes:
        assert sample.env_steps
    assert sample.episodes[0].length == 1
