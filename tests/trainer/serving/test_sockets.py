"""Requests for actions by WebSocket: reef.serving.sockets, with the limits, the token and the batches of HTTP."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
from contextlib import suppress
from typing import Any

import aiohttp
import numpy as np
import pytest
from aiohttp import WSMsgType
from finished import MEMORY, finished, ppo
from served import JSON, MSGPACK, OBS, Ask, Held, decoded, encoded, served

from reef.serving import sockets
from reef.serving.finished import FinishedPolicy

PATH = "/v1/actions"


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> FinishedPolicy:
    return finished(ppo(), tmp_path_factory.mktemp("policy") / "c")


async def send(socket: aiohttp.ClientWebSocketResponse, message: Any, kind: str = JSON) -> None:
    """Send a request; bytes are sent as text, as they are."""
    if isinstance(message, bytes):
        await socket.send_frame(message, WSMsgType.TEXT)
    else:
        await socket.send_frame(encoded(message, kind), WSMsgType.TEXT if kind == JSON else WSMsgType.BINARY)


async def receive(socket: aiohttp.ClientWebSocketResponse, kind: str = JSON) -> Any:
    """The next answer, which has this form."""
    message = await socket.receive(timeout=20)
    assert message.type is (WSMsgType.TEXT if kind == JSON else WSMsgType.BINARY), message
    return decoded(message.data.encode() if kind == JSON else message.data, kind)


def test_text_and_binary_messages_are_answered_in_their_form_and_order(policy: FinishedPolicy) -> None:
    async def talk(client: aiohttp.ClientSession, ask: Ask) -> None:
        (_, expected) = await ask({"observation": OBS})
        async with client.ws_connect(PATH) as socket:
            await send(socket, {"observation": OBS})
            await send(socket, {"observation": np.array(OBS)}, MSGPACK)
            await send(socket, {"observations": [OBS] * 3})
            assert await receive(socket) == expected
            assert await receive(socket, MSGPACK) == expected
            assert await receive(socket) == {"actions": [expected["action"]] * 3}

    served(policy, talk)


def test_a_state_goes_to_the_client_and_back(tmp_path: Any) -> None:
    async def talk(client: aiohttp.ClientSession, ask: Ask) -> None:
        async with client.ws_connect(PATH) as socket:
            await send(socket, {"observation": OBS})
            first = await receive(socket)
            again = {"observation": OBS, "state": first["state"], "reward": 1.0}
            await send(socket, again)
            assert await receive(socket) == (await ask(again))[1]

    served(finished(ppo(model=MEMORY), tmp_path / "c"), talk)


def test_requests_of_one_connection_that_come_together_are_one_batch(
    policy: FinishedPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(policy, monkeypatch)

    async def talk(client: aiohttp.ClientSession, _: Ask) -> None:
        async with client.ws_connect(PATH) as socket:
            for _ in range(4):
                await send(socket, {"observation": OBS})
            await held.until_begun()
            while "reef_serving_queued_observations 4.0" not in await (await client.get("/metrics")).text():
                await asyncio.sleep(0.01)
            held.go_on.set()
            assert all([(await receive(socket))["action"] in (0, 1) for _ in range(4)])
        assert sum(held.sizes) == 4
        assert len(held.sizes) <= 2

    served(policy, talk)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (b"", "the body is no AskActions message"),
        (b"\xff", "the body is no AskActions message"),
        ({"observation": [1]}, "the observation has shape (1,), expected (4,)"),
        ({"observation": OBS, "obs": 1}, "unknown field `obs`"),
    ],
)
def test_what_is_wrong_is_answered_and_the_connection_goes_on(policy: FinishedPolicy, message: Any, text: str) -> None:
    async def talk(client: aiohttp.ClientSession, _: Ask) -> None:
        async with client.ws_connect(PATH) as socket:
            await send(socket, message)
            await send(socket, {"observation": OBS})
            refused = await receive(socket)
            assert (refused["status"], text in refused["error"]) == (400, True), refused
            assert (await receive(socket)).keys() == {"action"}
        found = await (await client.get("/metrics")).text()
        assert '\nreef_serving_errors_total{kind="value"} 1.0\n' in found
        assert "\nreef_serving_requests_total 2.0\n" in found

    served(policy, talk)


def test_too_much_at_once_is_answered_as_busy(policy: FinishedPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(policy, monkeypatch)

    async def talk(client: aiohttp.ClientSession, _: Ask) -> None:
        async with client.ws_connect(PATH) as socket:
            await send(socket, {"observation": OBS})
            await held.until_begun()
            for _ in range(2):
                await send(socket, {"observation": OBS})
            while "reef_serving_requests_total 3.0" not in await (await client.get("/metrics")).text():
                await asyncio.sleep(0.01)
            held.go_on.set()
            found = [await receive(socket) for _ in range(3)]
            assert found[2] == {"status": 429, "error": "2 observations wait, at most 2 may"}

    served(policy, talk, queued=2)


@pytest.mark.parametrize("kind", [WSMsgType.TEXT, WSMsgType.BINARY])
def test_a_message_that_is_too_large_ends_its_connection_alone(policy: FinishedPolicy, kind: WSMsgType) -> None:
    async def talk(client: aiohttp.ClientSession, _: Ask) -> None:
        async with client.ws_connect(PATH) as socket, client.ws_connect(PATH) as other:
            await socket.send_frame(b"0" * 20_000, kind)
            assert (await socket.receive(timeout=20)).type is WSMsgType.CLOSE
            assert socket.close_code == aiohttp.WSCloseCode.MESSAGE_TOO_BIG
            await send(other, {"observation": OBS})
            assert (await receive(other)).keys() == {"action"}

    served(policy, talk)


def test_a_frame_that_breaks_the_protocol_ends_its_connection(policy: FinishedPolicy) -> None:
    async def talk(client: aiohttp.ClientSession, ask: Ask) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", client._base_url.port)
        key = base64.b64encode(b"0" * 16).decode()
        head = f"GET {PATH} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        writer.write(f"{head}Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode())
        assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
        writer.write(b"\xf1\x80\x00\x00\x00\x00")  # with a bit that has no meaning
        closed = await asyncio.wait_for(reader.read(4), 20)
        assert closed == b"\x88" + bytes([closed[1]]) + (1002).to_bytes(2)
        writer.close()
        assert (await ask({"observation": OBS}))[0] == 200

    served(policy, talk)


def test_a_request_without_upgrade_is_none(policy: FinishedPolicy) -> None:
    async def talk(client: aiohttp.ClientSession, _: Ask) -> None:
        found = await client.get(PATH)
        assert (found.status, found.headers["Allow"]) == (405, "POST")
        found = await client.get(PATH, headers={"Upgrade": "websocket", "Connection": "upgrade"})
        assert found.status == 400

    served(policy, talk)


def protocol(token: str) -> list[str]:
    return ["reef", "reef.token." + base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")]


def test_a_token_comes_in_a_header_or_as_a_subprotocol(policy: FinishedPolicy) -> None:
    async def talk(client: aiohttp.ClientSession, _: Ask) -> None:
        for wrong in ({}, {"headers": {"Authorization": "Bearer wrong"}}, {"protocols": protocol("wrong")}):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await client.ws_connect(PATH, **wrong)
            assert refused.value.status == 401
        for right in ({"headers": {"Authorization": "Bearer s+/e c"}}, {"protocols": protocol("s+/e c")}):
            async with client.ws_connect(PATH, **right) as socket:
                assert socket.protocol in (None, "reef")
                await send(socket, {"observation": OBS})
                assert (await receive(socket)).keys() == {"action"}

    served(policy, talk, token="s+/e c")


def test_pages_of_other_servers_open_no_socket(policy: FinishedPolicy) -> None:
    async def talk(client: aiohttp.ClientSession, _: Ask) -> None:
        own = f"127.0.0.1:{client._base_url.port}"
        named = {"Host": f"evil.example:{client._base_url.port}"}  # a name that leads to this machine
        tries = [
            ({"Origin": "http://evil.example"}, True),
            ({"Origin": f"http://{own}"}, False),
            (named | {"Origin": f"http://{named['Host']}"}, True),
        ]
        for headers, is_refused in tries:
            if is_refused:
                with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                    await client.ws_connect(PATH, headers=headers)
                assert refused.value.status == 403, headers
            else:
                await (await client.ws_connect(PATH, headers=headers)).close()
        text = await (await client.get("/metrics")).text()
        assert f'kind="origin"}} {sum(no for _, no in tries)}.0' in text

    served(policy, talk)


async def until_cut_off(port: int, observations: int) -> int:
    """Send requests and read no answer until the server has closed the connection; how many could be sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**10)
    key = base64.b64encode(b"0" * 16).decode()
    head = f"GET {PATH} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    writer.write(f"{head}Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode())
    assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
    body = encoded({"observations": [OBS] * observations}, JSON)
    frame, sent = b"\x81\xfe" + len(body).to_bytes(2) + bytes(4) + body, 0
    with suppress(ConnectionError):
        while True:
            writer.write(frame)
            await writer.drain()
            sent += 1
    return sent


def test_a_client_that_reads_nothing_holds_up_itself_alone(
    policy: FinishedPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "TAKEN_S", 3.0)
    # Answers of 100 kB each: what the client could still receive is soon full.
    monkeypatch.setattr(policy, "act", _long_answers(policy.act))

    async def talk(client: aiohttp.ClientSession, ask: Ask) -> None:
        flood = asyncio.create_task(until_cut_off(client._base_url.port, 100))
        for _ in range(20):
            assert (await ask({"observation": OBS}))[0] == 200
        # What was answered and read lies in the buffers of both sides, which hold some megabytes.
        assert await asyncio.wait_for(flood, 120) < 5000
        assert (await ask({"observation": OBS}))[0] == 200

    served(policy, talk, queued=10_000)


def _long_answers(act: Any) -> Any:
    def acts(asked: Any) -> Any:
        found: list[Any] = act(asked)
        for each in found:
            if len(each.actions) > 1:
                each.actions[0] = "x" * 100_000
        return found

    return acts


def test_what_was_asked_before_sigterm_is_answered_and_then_it_is_closed(
    policy: FinishedPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(policy, monkeypatch)

    async def talk(client: aiohttp.ClientSession, _: Ask) -> None:
        async with client.ws_connect(PATH) as socket, client.ws_connect(PATH) as idle:
            await send(socket, {"observation": OBS})
            await held.until_begun()
            os.kill(os.getpid(), signal.SIGTERM)
            assert (await idle.receive(timeout=20)).type is WSMsgType.CLOSE
            assert idle.close_code == aiohttp.WSCloseCode.GOING_AWAY
            held.go_on.set()
            assert (await receive(socket)).keys() == {"action"}
            assert (await socket.receive(timeout=20)).type is WSMsgType.CLOSE

    served(policy, talk)


def test_a_client_that_goes_away_leaves_nothing_behind(policy: FinishedPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(policy, monkeypatch)

    async def talk(client: aiohttp.ClientSession, ask: Ask) -> None:
        async with client.ws_connect(PATH) as socket:
            await send(socket, {"observation": OBS})
            await held.until_begun()
        held.go_on.set()
        assert (await ask({"observation": OBS}))[0] == 200
        assert "\nreef_serving_queued_observations 0.0\n" in await (await client.get("/metrics")).text()

    served(policy, talk, connections=3)


@pytest.mark.parametrize(("count", "size"), [(sockets.IN_FLIGHT, 1), (2, 50)])
def test_no_more_is_read_while_enough_is_under_way(count: int, size: int) -> None:
    class Client:
        async def send_frame(self, body: bytes, frame: WSMsgType) -> None:
            sent.append(body)

    sent: list[bytes] = []

    async def answer(number: int) -> bytes:
        return b"%d" % number

    async def talk() -> None:
        requests = sockets.UnderWay(100)
        for number in range(count):
            await asyncio.wait_for(requests.until_room(), 1.0)
            requests.add(JSON, size, asyncio.create_task(answer(number)))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(requests.until_room(), 0.1)
        requests.end()
        await requests.send(Client())
        await asyncio.wait_for(requests.until_room(), 1.0)
        assert sent == [b"%d" % number for number in range(count)]

    asyncio.run(talk())
