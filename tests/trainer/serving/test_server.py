"""The server of a finished policy by HTTP: reef.serving.server, and reef.serving.batches behind it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
from any_spaces import with_spaces
from finished import MEMORY, finished, ppo
from gymnasium import spaces
from served import JSON, MSGPACK, OBS, Ask, Held, served

from reef.serving import server
from reef.serving.finished import FinishedPolicy
from reef.serving.metrics import KINDS
from reef.serving.server import ServingLimits

DOCUMENT = Path(__file__).parents[3] / "docs" / "serving.md"


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> FinishedPolicy:
    return finished(ppo(), tmp_path_factory.mktemp("policy") / "c")


@pytest.mark.parametrize("kind", [JSON, MSGPACK])
def test_one_observation_or_a_batch_get_the_policy_s_actions(policy: FinishedPolicy, kind: str) -> None:
    async def talk(_: Any, ask: Ask) -> None:
        expected = policy.policy.compute_single_action(np.array(OBS, np.float32), explore=False)[0]
        assert await ask({"observation": OBS}, kind) == (200, {"action": expected})
        assert await ask({"observations": [OBS, OBS]}, kind) == (200, {"actions": [expected] * 2})

    served(policy, talk)


def test_the_requests_of_the_document_are_answered(policy: FinishedPolicy) -> None:
    requests = re.findall(r"-d '(.*)'\n(.*)\n", DOCUMENT.read_text())

    async def talk(_: Any, ask: Ask) -> None:
        for body, answer in requests:
            status, found = await ask(body.encode())
            assert (status, found.keys()) == (200, json.loads(answer).keys())

    served(policy, talk)
    assert len(requests) == 2


def test_the_document_names_every_kind_of_error_and_every_metric(policy: FinishedPolicy) -> None:
    async def talk(client: aiohttp.ClientSession, _: Ask) -> str:
        return await (await client.get("/metrics")).text()

    names = set(re.findall(r"^# TYPE (\w+)", served(policy, talk), re.MULTILINE))
    text = DOCUMENT.read_text()
    rows = re.findall(r"^\| `(reef_serving_\w+)`", text, re.MULTILINE)
    assert {name for name in names if not name.endswith("_created")} == set(rows)
    assert all(f"`{kind}`" in text for kind in KINDS.values())


def test_arrays_of_messagepack_are_observations(policy: FinishedPolicy) -> None:
    async def talk(_: Any, ask: Ask) -> None:
        (status, one), (_, several) = (
            await ask({"observation": np.array(OBS)}, MSGPACK),
            await ask({"observations": np.array([OBS, OBS])}, MSGPACK),
        )
        assert status == 200
        assert several["actions"] == [one["action"]] * 2

    served(policy, talk)


def test_a_state_goes_to_the_client_and_back(tmp_path: Path) -> None:
    policy = finished(ppo(model=MEMORY), tmp_path / "c")

    async def talk(_: Any, ask: Ask) -> None:
        first = (await ask({"observation": OBS}))[1]
        status, second = await ask({"observation": OBS, "state": first["state"], "reward": 1.0})
        assert status == 200
        assert second["state"] != first["state"]
        both = (await ask({"observations": [OBS, OBS], "states": [None, first["state"]], "rewards": [0, 1.0]}))[1]
        np.testing.assert_allclose(both["states"][1][0], second["state"][0], atol=1e-6)
        packed = (await ask({"observation": OBS}, MSGPACK))[1]
        status, again = await ask({"observation": OBS, "state": packed["state"], "reward": 1.0}, MSGPACK)
        assert np.frombuffer(again["state"][0]["data"], "<f4") == pytest.approx(second["state"][0])

    served(policy, talk)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"observation": OBS, "state": np.zeros((2, 3))}, "state has arrays of the shapes"),
        ({"observations": [OBS], "states": np.zeros((2, 3))}, "'states' is no list"),
    ],
)
def test_a_state_that_is_one_array_is_refused(tmp_path: Path, message: Any, text: str) -> None:
    async def talk(_: Any, ask: Ask) -> None:
        status, said = await ask(message, MSGPACK)
        assert (status, text in said) == (400, True), said

    served(finished(ppo(model=MEMORY), tmp_path / "c"), talk)


def test_values_of_every_space_come_as_json(tmp_path: Path) -> None:
    action = spaces.Dict({"a": spaces.MultiDiscrete([2, 3]), "b": spaces.Box(-1, 1, (2,)), "c": spaces.MultiBinary(2)})
    policy = finished(ppo(**with_spaces(spaces.Discrete(4), action)), tmp_path / "c")

    async def talk(_: Any, ask: Ask) -> None:
        _, found = await ask({"observation": 3})
        values = {name: np.array(value, action[name].dtype) for name, value in found["action"].items()}
        assert action.contains(values)

    served(policy, talk)


@pytest.mark.parametrize(
    ("message", "status", "text"),
    [
        (b"", 400, "the body is no AskActions message"),
        (b"\xff", 400, "the body is no AskActions message"),
        (b'{"observation": [NaN, 0, 0, 0]}', 400, "NaN is no number of JSON"),
        (b'{"observation": [Infinity, 0, 0, 0]}', 400, "Infinity is no number of JSON"),
        ({}, 400, "give 'observation', one value, or 'observations', a list of them"),
        ({"observation": OBS, "observations": [OBS]}, 400, "give 'observation', one value, or"),
        ({"observation": [OBS]}, 400, "the observation has shape (1, 4), expected (4,)"),
        ({"observation": [1]}, 400, "the observation has shape (1,), expected (4,)"),
        ({"observation": [None, 0, 0, 0]}, 400, "NaN or infinite"),
        ({"observation": None}, 400, "the observation"),
        ({"observations": [OBS, [1]]}, 400, "observation 1 of 2: the observation has shape (1,)"),
        ({"observations": []}, 400, "'observations' is no list of observations, or an empty one"),
        ({"observations": 3}, 400, "'observations' is no list of observations"),
        ({"observations": [OBS] * 101}, 400, "101 observations in one request: at most 100"),
        ({"observation": OBS, "states": []}, 400, "'states' does not belong to 'observation'. Give 'state'"),
        ({"observations": [OBS], "state": []}, 400, "'state' does not belong to 'observations'. Give 'states'"),
        ({"observations": [OBS], "states": 3}, 400, "'states' is no list"),
        ({"observation": OBS, "state": [[1.0]]}, 400, "this policy has no memory"),
        ({"observation": OBS, "reward": 1.0}, 400, "this policy reads none"),
        ({"observation": OBS, "obs": 1}, 400, "unknown field `obs`"),
        ({"observation": [0.0] * 5000}, 413, "Maximum request body size 10000 exceeded"),
    ],
)
def test_what_is_wrong_is_refused_with_its_name(policy: FinishedPolicy, message: Any, status: int, text: str) -> None:
    async def talk(_: Any, ask: Ask) -> None:
        found, said = await ask(message)
        assert (found, text in said) == (status, True), said
        assert (await ask({"observation": OBS}))[0] == 200

    served(policy, talk)


def test_too_many_values_of_json_are_refused_before_they_are_made(policy: FinishedPolicy) -> None:
    async def talk(_: Any, ask: Ask) -> None:
        status, said = await ask(b"[" + b"0," * 200_001)
        assert status == 400
        assert "more than 200000 values: send arrays in MessagePack" in said

    served(policy, talk, request_bytes=2**20)


def test_another_content_type_path_or_method_is_refused(policy: FinishedPolicy) -> None:
    async def talk(client: aiohttp.ClientSession, ask: Ask) -> None:
        status, said = await ask({"observation": OBS}, "text/plain")
        assert (status, said) == (415, f"Content-Type: text/plain: expected {JSON} or {MSGPACK}")
        assert (await client.get("/v2/actions")).status == 404
        refused = await client.get("/v1/actions")
        assert (refused.status, refused.headers["Allow"]) == (405, "POST")

    served(policy, talk)


def test_a_token_is_asked_for_but_not_by_probes(policy: FinishedPolicy) -> None:
    async def talk(client: aiohttp.ClientSession, ask: Ask) -> None:
        assert (await ask({"observation": OBS}))[0] == 401
        assert (await ask({"observation": OBS}, Authorization="Bearer wrong"))[0] == 401
        assert (await ask({"observation": OBS}, Authorization="Bearer secret"))[0] == 200
        assert (await client.get("/v1/policy")).status == 401
        for path in ("/healthz", "/metrics", "/openapi.json"):
            assert (await client.get(path)).status == 200, path

    served(policy, talk, token="secret")


def test_without_a_token_a_page_of_another_server_gets_no_action(policy: FinishedPolicy) -> None:
    async def talk(client: aiohttp.ClientSession, ask: Ask) -> None:
        elsewhere = f"evil.example:{client._base_url.port}"  # a name that leads to this machine
        status, said = await ask({"observation": OBS}, Host=elsewhere, Origin=f"http://{elsewhere}")
        assert (status, said) == (
            403,
            f"Origin: 'http://{elsewhere}': the page is not this server's own under a loopback name",
        )

    served(policy, talk)


def test_the_policy_is_described(policy: FinishedPolicy) -> None:
    async def talk(client: aiohttp.ClientSession, _: Ask) -> Any:
        return await (await client.get("/v1/policy")).json()

    found = served(policy, talk)
    assert found["action_space"] == {"type": "Discrete", "n": 2, "start": 0}
    assert found["observation_space"]["shape"] == [4]
    assert {key: found[key] for key in ("policy", "algorithm", "explore", "state")} == {
        "policy": "default_policy",
        "algorithm": "PPO",
        "explore": False,
        "state": [],
    }


def test_metrics_count_requests_errors_and_batches(policy: FinishedPolicy) -> None:
    async def talk(client: aiohttp.ClientSession, ask: Ask) -> str:
        await ask({"observations": [OBS] * 3})
        await ask({"observation": [1]})
        await ask(b"", "text/plain")
        return await (await client.get("/metrics")).text()

    found = served(policy, talk)
    for line in (
        "reef_serving_requests_total 3.0",
        'reef_serving_errors_total{kind="value"} 1.0',
        'reef_serving_errors_total{kind="content_type"} 1.0',
        'reef_serving_errors_total{kind="busy"} 0.0',
        "reef_serving_request_seconds_count 3.0",
        'reef_serving_batch_observations_bucket{le="2.0"} 0.0',
        'reef_serving_batch_observations_bucket{le="4.0"} 1.0',
        "reef_serving_queued_observations 0.0",
    ):
        assert f"\n{line}\n" in found, line


def test_what_comes_during_a_pass_is_one_batch_and_too_much_of_it_is_refused(
    policy: FinishedPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(policy, monkeypatch)

    async def talk(client: aiohttp.ClientSession, ask: Ask) -> None:
        first = asyncio.create_task(ask({"observation": OBS}))
        await held.until_begun()
        others = [asyncio.create_task(ask({"observations": [OBS] * 3})) for _ in range(3)]
        while "reef_serving_queued_observations 10.0" not in await (await client.get("/metrics")).text():
            await asyncio.sleep(0.01)
        body = json.dumps({"observation": OBS})
        refused = await client.post("/v1/actions", data=body, headers={"Content-Type": JSON})
        assert (refused.status, refused.headers["Retry-After"]) == (429, "1")
        assert await refused.text() == "10 observations wait, at most 10 may"
        assert (await client.get("/healthz")).status == 200
        held.go_on.set()
        assert [status for status, _ in await asyncio.gather(first, *others)] == [200] * 4
        assert held.sizes == [1, 9]
        assert (await ask({"observation": OBS}))[0] == 200

    served(policy, talk, queued=10)


def test_the_largest_request_is_answered_while_others_are_acted_on(
    policy: FinishedPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(policy, monkeypatch)

    async def talk(client: aiohttp.ClientSession, ask: Ask) -> None:
        first = asyncio.create_task(ask({"observation": OBS}))
        await held.until_begun()
        largest = asyncio.create_task(ask({"observations": [OBS] * 10}))
        while "reef_serving_queued_observations 11.0" not in await (await client.get("/metrics")).text():
            assert not largest.done(), largest.result()
            await asyncio.sleep(0.01)
        assert (await ask({"observation": OBS}))[0] == 429
        held.go_on.set()
        assert [status for status, _ in await asyncio.gather(first, largest)] == [200] * 2
        assert held.sizes == [1, 10]

    served(policy, talk, queued=10)


def test_what_was_asked_before_sigterm_is_answered(policy: FinishedPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(policy, monkeypatch)

    async def talk(_: Any, ask: Ask) -> None:
        asked = asyncio.create_task(ask({"observation": OBS}))
        await held.until_begun()
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.1)
        assert not asked.done()
        with pytest.raises(aiohttp.ClientConnectionError):
            await asyncio.wait_for(ask({"observation": OBS}), 20)
        held.go_on.set()
        assert (await asked)[0] == 200

    served(policy, talk)


def test_a_failure_is_logged_and_not_shown(
    policy: FinishedPolicy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(policy, "act", lambda asked: [RuntimeError("secret of the server") for _ in asked])

    async def talk(_: Any, ask: Ask) -> None:
        assert await ask({"observation": OBS}) == (500, "the server failed, as its log says")

    served(policy, talk)
    assert "secret of the server" in caplog.text


def test_a_pass_that_fails_as_a_whole_leaves_the_server_alive(
    policy: FinishedPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, failures = policy.act, [MemoryError()]

    def act(asked: Any) -> Any:
        if failures:
            raise failures.pop()
        return own(asked)

    monkeypatch.setattr(policy, "act", act)

    async def talk(_: Any, ask: Ask) -> None:
        assert [(await ask({"observation": OBS}))[0] for _ in range(2)] == [500, 200]

    served(policy, talk)


def test_connections_are_bounded(policy: FinishedPolicy) -> None:
    async def talk(client: aiohttp.ClientSession, ask: Ask) -> None:
        assert (await ask({"observation": OBS}))[0] == 200  # by the only connection, which stays open
        reader, writer = await asyncio.open_connection("127.0.0.1", client._base_url.port)
        assert (await reader.read()).startswith(b"HTTP/1.1 503 ")
        writer.close()

    served(policy, talk, connections=1)


def test_a_body_that_does_not_come_is_given_up(policy: FinishedPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "BODY_S", 0.1)

    async def talk(client: aiohttp.ClientSession, _: Ask) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", client._base_url.port)
        writer.write(
            f"POST /v1/actions HTTP/1.1\r\nHost: x\r\nContent-Type: {JSON}\r\nContent-Length: 9\r\n\r\n12".encode()
        )
        assert b" 408 " in await reader.read(1000)
        writer.close()

    served(policy, talk)


def test_the_socket_is_closed_when_it_has_ended(policy: FinishedPolicy) -> None:
    async def talk(client: aiohttp.ClientSession, _: Ask) -> int:
        return int(client._base_url.port)

    port = served(policy, talk)
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def test_messages_of_all_connections_take_no_more_than_bodies_may() -> None:
    assert ServingLimits(500, 16 * 2**20, 1).message_bytes == 256 * 2**20 // 500
    assert ServingLimits(10, 1000, 1).message_bytes == 1000
