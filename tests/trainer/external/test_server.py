"""The policy server by plain HTTP, as docs/external-protocol.md describes it: messages and limits.

The limits on connections and bodies are those of reef.external.listening: connections and bodies.
"""

from __future__ import annotations

import random
import re
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pytest
from applications import address, client_of, observation
from gymnasium import spaces

from reef.batch import Rollout
from reef.external import server
from reef.external.listening import bodies
from reef.external.listening.bodies import BodyMemory
from reef.external.wire import encode
from reef.external.worker import ExternalWorker

TYPE = "application/msgpack"
NO_FRAGMENT = {"obs": 1, "actions": 1, "rewards": 1}
Serve = Callable[..., ExternalWorker]


def ask(worker: ExternalWorker, path: str, message: Any = None, **headers: str) -> tuple[int, Any]:
    """Status and content of an answer: a message, or the text of an error; bytes are sent as they are."""
    body = message if isinstance(message, bytes) else None if message is None else encode(message)
    request = urllib.request.Request(f"{address(worker)}/v1/{path}", body, {"Content-Type": TYPE} | headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, msgspec.msgpack.decode(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def step(episode_id: str = "a", **fields: Any) -> dict[str, Any]:
    return {"steps": [{"episode_id": episode_id, "obs": observation(), **fields}]}


def rollout_of(worker: ExternalWorker, steps: int) -> Rollout:
    return worker.sample(steps).rollouts["default_policy"]


def test_an_episode_from_beginning_to_end(serve: Serve) -> None:
    worker = serve()
    assert ask(worker, "episodes", {"episode_id": "a"}) == (200, {"episode_id": "a", "has_agents": False})
    status, found = ask(worker, "steps", step())
    assert status == 200
    assert found["actions"][0] in (0, 1)
    assert ask(worker, "steps", step(reward=2, action=1)) == (200, {"actions": [1]})
    assert ask(worker, "episodes/end", {"episode_id": "a", "steps": [{"obs": [0.5, 0, 0], "reward": 3}]}) == (200, None)
    rollout = rollout_of(worker, 2)
    assert rollout.rewards[:, 0].tolist() == [2, 3]
    assert rollout.actions[:, 0].tolist() == [found["actions"][0], 1]
    assert rollout.next_obs[-1, 0].tolist() == [0.5, 0, 0]
    assert rollout.terminated[:, 0].tolist() == [False, True]


def test_without_a_token_a_page_of_another_server_changes_nothing(serve: Serve) -> None:
    page = {"Host": "evil.example", "Origin": "http://evil.example"}  # a name that leads to this machine
    refused = (403, "Origin: 'http://evil.example': the page is not this server's own under a loopback name")
    assert ask(serve(), "episodes", {}, **page) == refused


def test_the_server_chooses_an_id_where_none_is_given(serve: Serve) -> None:
    worker = serve()
    first, second = (ask(worker, "episodes", {})[1]["episode_id"] for _ in range(2))
    assert first != second
    assert ask(worker, "steps", step(first))[0] == 200


@pytest.mark.parametrize(
    ("path", "message", "status", "text"),
    [
        ("episodes", {"episode_id": "open"}, 409, "episode 'open' is open already"),
        ("episodes", {"episode_id": ""}, 400, "episode_id has 0 characters, expected 1 to 200"),
        ("steps", step("nowhere"), 404, "episode 'nowhere' is not open here"),
        (
            "steps",
            {"steps": 2 * step("open")["steps"]},
            409,
            "an episode, or an agent, occurs twice in one request",
        ),
        ("steps", step("open", reward=1.0), 409, "a reward of 1 before the first action"),
        ("steps", step("open", obs=[1.0]), 400, r"the observation has shape (1,), expected (3,)"),
        ("steps", step("open", obs="left"), 400, "the observation is no value of Box"),
        ("steps", step("open", obs=[float("nan")] * 3), 400, "the observation has values that are NaN or infinite"),
        ("steps", step("open", obs=None), 400, "observation"),
        ("steps", step("open", action=2), 400, "the action is no value of Discrete(2): got 2, expected 0 to 1"),
        ("steps", step("open", action=[0, 1]), 400, "the action is no value of Discrete(2)"),
        ("steps", step("open", action=1e300), 400, "the action is no value of Discrete(2)"),
        ("steps", step("open", done=True), 400, "done: an episode of one agent ends as a whole. Leave it out."),
        ("steps", step("open", extra=1), 400, "unknown field `extra`"),
        ("episodes/end", {"episode_id": "open", "steps": [{"obs": [2]}]}, 400, "the observation has shape"),
        ("episodes/end", {"episode_id": "open", "steps": []}, 400, "ends with 0 observations, expected the one of"),
        ("steps", step("open", agent_id="a"), 400, "agent 'a': an episode has one agent here. Give policies, or"),
        ("fragments", {"fragments": [NO_FRAGMENT], "env_steps": 1}, 400, "fragment: rewards: expected an array [T]"),
        ("fragments", {"fragments": [], "env_steps": 0}, 400, "fragments: expected at least one."),
    ],
)
def test_what_is_wrong_is_refused_and_changes_nothing(
    serve: Serve, path: str, message: Any, status: int, text: str
) -> None:
    worker = serve()
    ask(worker, "episodes", {"episode_id": "open"})
    found = ask(worker, path, message)
    assert found[0] == status
    assert text in found[1]
    assert ask(worker, "steps", step("open", action=0))[0] == 200
    assert (
        ask(worker, "episodes/end", {"episode_id": "open", "steps": [{"obs": observation(), "reward": 7.0}]})[0] == 200
    )
    assert rollout_of(worker, 1).rewards.tolist() == [[7.0]]


def test_a_request_that_is_sent_again_is_done_once(serve: Serve) -> None:
    worker = serve()
    ask(worker, "episodes", {"episode_id": "a"})
    answers = [
        ask(worker, "steps", step(action=1, reward=i), **{"Reef-Request": f"b/{n}"}) for i, n in enumerate((1, 2, 2))
    ]
    assert answers == 3 * [(200, {"actions": [1]})]
    assert ask(worker, "steps", step("nowhere"), **{"Reef-Request": "b/3"})[0] == 404
    assert ask(worker, "steps", step(), **{"Reef-Request": "b/1"})[0] == 409
    assert ask(worker, "steps", step(), **{"Reef-Request": "b"})[0] == 400
    for _ in range(2):
        end = {"episode_id": "a", "steps": [{"obs": observation()}]}
        assert ask(worker, "episodes/end", end, **{"Reef-Request": "b/3"}) == (200, None)
    assert rollout_of(worker, 5).rewards[:, 0].tolist() == [1, 0]


@pytest.mark.parametrize(("path", "status"), [("nowhere", 404), ("../v2/steps", 404), ("policy", 405)])
def test_other_places_and_methods_are_refused(serve: Serve, path: str, status: int) -> None:
    assert ask(serve(), path, {})[0] == status


def test_a_body_that_is_too_large_is_refused(serve: Serve) -> None:
    worker = serve(input_config={"max_request_bytes": 1000})
    assert ask(worker, "steps", bytes(2000))[0] == 413
    assert ask(worker, "episodes", {})[0] == 200


@pytest.mark.parametrize("sent", ["", "Bearer", "Bearer wrong", "Bearer secret ", "Basic secret", "Bearer sécret"])
def test_a_wrong_token_is_refused_before_anything_else(
    serve: Serve, sent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLICY_TOKEN", " secret\n")
    worker = serve(input_config={"token_env": "POLICY_TOKEN"})
    headers = {"Authorization": sent} if sent else {}
    if sent.endswith(" "):  # such as HTTP strips
        assert ask(worker, "episodes", {}, **headers)[0] == 200
        return
    assert ask(worker, "nowhere", bytes(100), **headers) == (401, "the token is missing or wrong")
    assert ask(worker, "weights", None, **headers)[0] == 401
    assert ask(worker, "episodes", {}, Authorization="Bearer secret")[0] == 200


@pytest.mark.parametrize("sent", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_what_a_web_page_can_send_is_refused(serve: Serve, sent: str) -> None:
    worker = serve()
    status, text = ask(worker, "episodes", {}, **{"Content-Type": sent})
    assert (status, text) == (415, f"Content-Type: {sent.partition(';')[0]}: expected application/msgpack")
    assert ask(worker, "episodes", {}, **{"Content-Type": TYPE + "; x=1"})[0] == 200


def test_bytes_at_random_are_refused_and_do_no_harm(serve: Serve) -> None:
    worker, chance = serve(), random.Random(1)
    ask(worker, "episodes", {"episode_id": "a"})
    whole = encode(step())
    for number in range(60):
        body = bytearray(whole if number % 2 else chance.randbytes(chance.randrange(200)))
        for _ in range(chance.randrange(1, 6)):
            if body:
                body[chance.randrange(len(body))] = chance.randrange(256)
        path = chance.choice(["episodes", "steps", "episodes/end", "fragments"])
        status, found = ask(worker, path, bytes(body))
        assert status in (200, 400, 404, 409), found
    assert ask(worker, "episodes", {"episode_id": "b"})[0] == 200
    assert ask(worker, "steps", step("b"))[0] == 200


def test_garbage_in_place_of_http_does_no_harm(serve: Serve) -> None:
    worker = serve()
    with socket.create_connection(("127.0.0.1", worker.source.port)) as connection:
        connection.sendall(bytes(range(256)) * 10)
        assert b" 400 " in connection.recv(1000)
    assert ask(worker, "episodes", {})[0] == 200


def test_a_body_that_does_not_come_is_given_up(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "BODY_S", 0.1)
    with socket.create_connection(("127.0.0.1", serve().source.port)) as connection:
        head = f"POST /v1/steps HTTP/1.1\r\nHost: x\r\nContent-Type: {TYPE}\r\nContent-Length: 10\r\n\r\n"
        connection.sendall(head.encode() + b"12")
        assert b" 408 " in connection.recv(1000)


def test_many_bodies_that_come_slowly_do_not_stop_others(serve: Serve) -> None:
    worker = serve()
    slow = [socket.create_connection(("127.0.0.1", worker.source.port)) for _ in range(200)]
    ask(worker, "episodes", {"episode_id": "a"})
    head = f"POST /v1/steps HTTP/1.1\r\nHost: x\r\nContent-Type: {TYPE}\r\nReef-Request: "
    for number, connection in enumerate(slow):
        connection.sendall(f"{head}{number}/1\r\nContent-Length: 100000\r\n\r\n".encode() + b"half")
    started = time.monotonic()
    for _ in range(20):
        assert ask(worker, "steps", step())[0] == 200
        for connection in slow:
            connection.sendall(b".")
    assert time.monotonic() - started < server.BODY_S / 2
    for connection in slow:
        connection.close()


def test_large_bodies_that_do_not_come_leave_room_for_small_ones(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "WAIT_S", 0.2)
    monkeypatch.setattr(server, "BodyMemory", partial(BodyMemory, all_bytes=1_000_000))
    worker = serve(input_config={"max_request_bytes": 1_000_000})
    ask(worker, "episodes", {"episode_id": "a"})
    head = f"POST /v1/steps HTTP/1.1\r\nHost: x\r\nContent-Type: {TYPE}\r\nContent-Length: 950000\r\n\r\n"
    with socket.create_connection(("127.0.0.1", worker.source.port)) as slow:
        slow.sendall(head.encode() + b"half")
        time.sleep(0.1)
        status, text = ask(worker, "steps", b"0" * 100_000)
        assert (status, text) == (429, "the bodies of other requests leave no room for one of this size")
        assert ask(worker, "steps", step())[0] == 200
    end = time.monotonic() + 30
    while ask(worker, "steps", b"0" * 100_000)[0] == 429:  # until the server has seen that it is closed
        assert time.monotonic() < end


def test_connections_are_bounded(serve: Serve) -> None:
    worker = serve(input_config={"max_connections": 2})
    threads = threading.active_count()
    held = [socket.create_connection(("127.0.0.1", worker.source.port)) for _ in range(2)]
    for connection in held:  # one that was answered counts
        connection.sendall(b"GET /v1/weights?version=0 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 ")
    with socket.create_connection(("127.0.0.1", worker.source.port)) as third:
        third.settimeout(30)
        answer = b"".join(iter(lambda: third.recv(1000), b""))
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert answer.endswith(b"too many connections")
    assert threading.active_count() == threads
    for connection in held:
        connection.close()
    end = time.monotonic() + 30
    while ask(worker, "episodes", {})[0] == 503:  # until the server has seen that they are closed
        assert time.monotonic() < end


@pytest.mark.parametrize("sent", [b"", b"POST /v1/steps HTTP/1.1\r\nHost: x\r\n"])
def test_a_connection_without_a_whole_request_is_closed(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(server, "IDLE_S", 0.1)
    with socket.create_connection(("127.0.0.1", serve().source.port), timeout=30) as connection:
        connection.sendall(sent)
        assert connection.recv(100) == b""


def test_a_client_whose_connection_was_closed_opens_another(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "IDLE_S", 0.1)
    client = client_of(serve(), timeout_s=30.0)
    episode = client.start_episode()
    time.sleep(0.5)
    assert client.get_action(episode, observation()) in (0, 1)
    client.close()


def test_an_error_of_the_server_is_told_with_its_traceback(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = serve()
    ask(worker, "episodes", {"episode_id": "a"})

    def choose(*_: Any) -> None:
        raise ZeroDivisionError("of the policy")

    with monkeypatch.context() as patch:
        patch.setattr(worker.runners["default_policy"], "choose", choose)
        status, text = ask(worker, "steps", step())
    assert status == 500
    assert "Traceback" in text
    assert "ZeroDivisionError: of the policy" in text
    assert ask(worker, "steps", step())[0] == 200


def test_a_full_queue_makes_clients_wait(serve: Serve) -> None:
    worker = serve(input_config={"max_queued_steps": 4})
    for name in ("a", "b"):
        ask(worker, "episodes", {"episode_id": name})
    ask(worker, "episodes", {"episode_id": "watched", "training_enabled": False})
    for _ in range(5):  # the fifth observation cuts four steps
        assert ask(worker, "steps", step("a"))[0] == 200
    assert ask(worker, "steps", step("b")) == (429, "the queue of steps is full until some were learned from")
    assert ask(worker, "fragments", {"fragments": [NO_FRAGMENT], "env_steps": 1})[0] == 429
    assert ask(worker, "steps", step("watched"))[0] == 200
    assert len(rollout_of(worker, 4)) == 4
    assert ask(worker, "steps", step("b"))[0] == 200


def test_open_episodes_are_bounded_and_idle_ones_dropped(serve: Serve) -> None:
    worker = serve(input_config={"max_episodes": 2})
    assert [ask(worker, "episodes", {"episode_id": name})[0] for name in "abc"] == [200, 200, 429]
    for name in "ab":
        worker.source._server._episodes.found(name).used_at -= 301.0  # episode_timeout is 300
    assert ask(worker, "steps", step("a"))[0] == 404
    assert ask(worker, "episodes", {"episode_id": "c"})[0] == 200
    assert ask(worker, "episodes", {"episode_id": "d"})[0] == 200


def at_once(act: Callable[[str], None], names: Sequence[str]) -> None:
    """Call `act` with each name, each in a thread of its own."""
    threads = [threading.Thread(target=act, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_requests_that_come_together_are_one_forward_pass(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = serve()
    names = [f"e{i}" for i in range(8)]
    for name in names:
        ask(worker, "episodes", {"episode_id": name})
    rows, choose = [], worker.runners["default_policy"].choose

    def counted(obs: Any, timestep: int) -> Any:
        rows.append(len(obs))
        time.sleep(0.2)  # in which the others come
        return choose(obs, timestep)

    monkeypatch.setattr(worker.runners["default_policy"], "choose", counted)
    statuses: list[int] = []
    at_once(lambda name: statuses.append(ask(worker, "steps", step(name))[0]), names)
    assert statuses == [200] * 8
    assert sum(rows) == 8
    assert len(rows) < 8


def test_a_request_that_fails_does_not_fail_those_that_came_with_it(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = serve()
    names = [f"e{i}" for i in range(6)]
    for name in names:
        ask(worker, "episodes", {"episode_id": name})
    rows, choose = [], worker.runners["default_policy"].choose

    def failing(obs: Any, timestep: int) -> Any:
        rows.append(len(obs))
        if len(rows) == 1:
            time.sleep(1.0)  # in which the others come
        if (obs == 1).any():
            raise ZeroDivisionError("of the policy")
        return choose(obs, timestep)

    monkeypatch.setattr(worker.runners["default_policy"], "choose", failing)
    statuses: dict[str, int] = {}

    def act(name: str) -> None:
        statuses[name] = ask(worker, "steps", step(name, obs=observation(1.0 if name == "e5" else 0.0)))[0]

    at_once(act, names)
    assert statuses == dict.fromkeys(names[:5], 200) | {"e5": 500}
    assert max(rows) > 1


def test_weights_are_sent_once_per_version(serve: Serve) -> None:
    worker = serve()
    first = ask(worker, "weights")[1]
    assert first["version"] == 0
    assert len(first["weights"]["default_policy"]) > 100
    assert ask(worker, "weights?version=0")[1] == {"version": 0, "timestep": 0, "weights": None}
    worker.set_weights({name: weights + 1 for name, weights in worker.get_weights().items()}, 1, 50)
    second = ask(worker, "weights?version=0")[1]
    assert (second["version"], second["timestep"]) == (1, 50)
    assert second["weights"] != first["weights"]


def fragments(**changed: Any) -> dict[str, Any]:
    """A message of one fragment; what is `changed` is a field of it, of the result, or of the message."""
    message = {"env_steps": 2, "episode": {"reward": 5.0, "length": 4, "policy_rewards": {"default_policy": 5.0}}}
    sent = {
        "obs": np.zeros((3, 3), np.float32),
        "actions": np.array([0, 1]),
        "rewards": np.ones(2, np.float32),
        "dist_inputs": np.zeros((2, 2), np.float32),
        "terminated": True,
    }
    for name, value in changed.items():
        where = next((part for part in (message, message["episode"]) if part and name in part), sent)
        where[name] = value
    return {"fragments": [sent], **message}


def test_a_fragment_that_a_client_acted_is_learned_from(serve: Serve) -> None:
    worker = serve()
    worker.set_weights(worker.get_weights(), version=3, timestep=50)
    newest = {"version": 3, "timestep": 50, "weights": None}
    assert ask(worker, "fragments", fragments(version=9)) == (200, newest)
    sample = worker.sample(2)
    assert sample.rollouts["default_policy"].policy_version == 3  # later ones are of a server before it
    rollout = sample.rollouts["default_policy"]
    assert rollout.actions[:, 0].tolist() == [0, 1]
    assert rollout.extras["action_logp"][:, 0] == pytest.approx(np.log(0.5))
    assert [(episode.reward, episode.length) for episode in sample.episodes] == [(5.0, 4)]


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"obs": np.zeros((2, 3), np.float32)}, "fragment: obs: got shape (2, 3), expected an array of shape (3, 3)."),
        ({"obs": [[0.0] * 3] * 3}, "fragment: obs: got list, expected an array"),
        ({"obs": np.full((3, 3), np.inf, np.float32)}, "fragment: obs has a value that is NaN or infinite."),
        ({"actions": np.array([0, 2])}, "fragment: actions has 2, expected 0 to 1"),
        ({"actions": np.array([0.5, 1])}, "fragment: actions: got float64, expected int64."),
        ({"rewards": np.zeros(0, np.float32)}, "fragment: rewards: expected an array [T] of at least one step."),
        ({"rewards": np.array([np.nan, 1])}, "fragment: rewards has a value that is NaN"),
        ({"dist_inputs": None}, "fragment: dist_inputs: got NoneType, expected an array of shape (2, 2)."),
        ({"truncated": True}, "fragment: terminated and truncated: an episode ends in one way."),
        ({"version": -1}, "fragment: version=-1: expected that of the weights, from 0 on."),
        ({"length": 1}, "length=1: expected finite numbers, and at least the 2 steps"),
        ({"reward": float("nan")}, "fragments: episode: reward=nan"),
        ({"policy_rewards": {"other": 1.0}}, "policy_rewards has ['other'], expected ['default_policy']."),
        ({"env_steps": 3}, "fragments: env_steps=3: expected 2, as there are in the fragments."),
        ({"episode": None}, "episode: expected where the last fragment is terminated or truncated, alone."),
        ({"terminated": False}, "episode: expected where the last fragment is terminated or truncated, alone."),
        ({"policy_id": "other"}, "fragment: policy_id='other': expected one of ['default_policy']."),
        ({"state_in": {"h": np.zeros(1)}}, "fragment: state_in: expected null: this policy has no memory."),
    ],
)
def test_a_fragment_that_does_not_fit_is_refused(serve: Serve, changed: dict[str, Any], text: str) -> None:
    status, found = ask(serve(), "fragments", fragments(**changed))
    assert status == 400
    assert text in found


@pytest.mark.parametrize(("action", "status"), [(1.5, 200), (1e30, 400)])
def test_a_fragment_with_an_impossible_action_is_refused(serve: Serve, action: float, status: int) -> None:
    worker = serve(action_space=spaces.Box(-1, 1, (1,)))  # a policy may choose one outside, which is clipped then
    found = ask(worker, "fragments", fragments(actions=np.array([[0.0], [action]])))
    assert found[0] == status
    assert status == 200 or found[1] == "fragment: actions has one that is impossible by its dist_inputs."


def test_without_a_critic_a_fragment_is_a_whole_episode(serve: Serve) -> None:
    worker = serve("PG")
    for changed in ({"terminated": False, "episode": None}, {"length": 4}):
        status, text = ask(worker, "fragments", fragments(**changed))
        assert (status, text[:31]) == (400, "fragment: a part of an episode,")
    assert ask(worker, "fragments", fragments(length=2))[0] == 200


def test_a_policy_that_records_no_inputs_takes_none(serve: Serve) -> None:
    worker = serve("DQN")
    assert "dist_inputs: this policy records none. Send null." in ask(worker, "fragments", fragments())[1]
    assert ask(worker, "fragments", fragments(dist_inputs=None))[0] == 200


def test_after_the_end_nobody_listens(serve: Serve) -> None:
    worker = serve()
    port, threads = worker.source.port, threading.active_count()
    ask(worker, "episodes", {})
    worker.stop()
    worker.stop()
    assert threading.active_count() == threads - 1
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


@pytest.mark.parametrize("algorithm", ["SAC", "DDPG"])
@pytest.mark.parametrize(("action", "status"), [(1.0, 200), (-1.0, 200), (1.5, 400), (1e30, 400)])
def test_a_fragment_has_actions_that_its_policy_chooses(
    serve: Serve, algorithm: str, action: float, status: int
) -> None:
    worker = serve(algorithm, action_space=spaces.Box(-2.0, 2.0, (1,), np.float32))
    inputs = worker.runners["default_policy"].policy.dist_class.num_inputs
    changed: dict[str, Any] = {"actions": np.array([[0.5], [action]], np.float32)}
    changed["dist_inputs"] = np.zeros((2, inputs), np.float32) if records_inputs(worker) else None
    found = ask(worker, "fragments", fragments(**changed))
    assert found[0] == status, found
    assert status == 200 or "expected -1 to 1: this policy chooses no others." in found[1]


def records_inputs(worker: ExternalWorker) -> bool:
    return "action_dist_inputs" in worker.runners["default_policy"].policy.acting_extras


@pytest.mark.parametrize(
    ("algorithm", "high", "action", "text"),
    [
        ("SAC", 2.0, 2.0, None),
        ("SAC", 2.0, 2.5, "2.5 is outside of its bounds"),
        ("SAC", 2.0, 1e30, "1e.30 is outside of its bounds"),
        ("PPO", np.inf, 5.0, None),
        ("PPO", np.inf, 1e30, "so far from those of the policy that its likelihood is no finite number"),
    ],
)
def test_an_action_of_the_application_is_one_that_the_policy_could_choose(
    serve: Serve, algorithm: str, high: float, action: float, text: str | None
) -> None:
    worker = serve(algorithm, action_space=spaces.Box(-high, high, (1,), np.float32))
    ask(worker, "episodes", {"episode_id": "a"})
    status, found = ask(worker, "steps", step(action=np.array([action], np.float32)))
    assert status == (200 if text is None else 400), found
    assert text is None or re.search(text, found)


def test_what_applications_have_and_what_was_refused_is_counted(serve: Serve) -> None:
    worker = serve()
    assert worker.source is not None
    for episode_id in ("a", "b"):
        ask(worker, "episodes", {"episode_id": episode_id})
    ask(worker, "steps", step("a"))
    ask(worker, "steps", step("a", obs="left"))
    ask(worker, "steps", step("nowhere"))
    ask(worker, "nothing", {})
    found = worker.source.applications()
    assert (found.open_episodes, found.queued_steps, found.refused) == (2, 0, {400: 1, 404: 2})
    ask(worker, "episodes/end", {"episode_id": "a", "steps": [{"obs": observation()}]})
    found = worker.source.applications()
    assert (found.open_episodes, found.queued_steps) == (1, 1)
    worker.sample(1)
    assert worker.source.applications().queued_steps == 0


def test_requests_without_the_token_are_counted(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "secret")
    worker = serve(input_config={"port": 0, "token_env": "TOKEN"})
    assert worker.source is not None
    assert ask(worker, "episodes", {})[0] == 401
    assert ask(worker, "episodes", {}, Authorization="Bearer secret")[0] == 200
    assert worker.source.applications().refused == {401: 1}
