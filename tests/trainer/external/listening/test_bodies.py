"""The memory of bodies: large ones wait for each other, small ones for none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from reef.external.listening import bodies
from reef.external.listening.bodies import BodyMemory, body_of
from reef.external.listening.refusals import BusyError

LARGE = bodies.SMALL_BYTES + 1


def talk(memory: BodyMemory, with_server: Callable[[aiohttp.ClientSession], Awaitable[Any]]) -> None:
    """Call `with_server` with a client of a server that returns the length of each body, or 429."""

    async def length(request: web.Request) -> web.Response:
        try:
            async with memory.room_for(request):
                return web.Response(text=str(len(await body_of(request, 20.0))))
        except BusyError:
            return web.Response(status=429)

    async def both() -> None:
        app = web.Application(client_max_size=10 * LARGE)
        app.router.add_post("/", length)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        address = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with aiohttp.ClientSession(address, timeout=aiohttp.ClientTimeout(20)) as client:
            await with_server(client)
        await runner.cleanup()

    asyncio.run(both())


async def half_sent(client: aiohttp.ClientSession, head: str) -> asyncio.StreamWriter:
    """A connection with a request whose body has begun."""
    _, writer = await asyncio.open_connection("127.0.0.1", client._base_url.port)
    writer.write(f"POST / HTTP/1.1\r\nHost: x\r\n{head}\r\n\r\n2\r\n12\r\n".encode())
    await asyncio.sleep(0.1)
    return writer


@pytest.mark.parametrize("head", [f"Content-Length: {LARGE}", "Transfer-Encoding: chunked"])
def test_large_bodies_wait_for_room_and_small_ones_do_not(head: str) -> None:
    async def with_server(client: aiohttp.ClientSession) -> None:
        writer = await half_sent(client, head)
        waiting = asyncio.create_task(client.post("/", data=b"0" * LARGE))
        for _ in range(5):
            assert await (await client.post("/", data=b"0" * 100)).text() == "100"
        assert not waiting.done()
        writer.close()
        assert await (await waiting).text() == str(LARGE)

    talk(BodyMemory(LARGE, all_bytes=LARGE), with_server)


def test_what_finds_no_room_in_time_is_to_be_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "WAIT_S", 0.2)

    async def with_server(client: aiohttp.ClientSession) -> None:
        writer = await half_sent(client, f"Content-Length: {LARGE}")
        assert (await client.post("/", data=b"0" * LARGE)).status == 429
        writer.close()
        await asyncio.sleep(0.1)
        assert (await client.post("/", data=b"0" * LARGE)).status == 200

    talk(BodyMemory(LARGE, all_bytes=2 * LARGE - 1), with_server)


def test_what_is_too_large_is_refused_before_it_is_read() -> None:
    async def with_server(client: aiohttp.ClientSession) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", client._base_url.port)
        writer.write(f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {LARGE + 1}\r\n\r\n".encode())
        assert b" 413 " in await asyncio.wait_for(reader.readline(), 5)
        writer.close()

    talk(BodyMemory(LARGE), with_server)


def test_there_is_room_for_the_largest_body_whatever_the_bound() -> None:
    talk(BodyMemory(LARGE, all_bytes=1), partial(_sends, LARGE))


async def _sends(size: int, client: aiohttp.ClientSession) -> None:
    for _ in range(3):
        assert await (await client.post("/", data=b"0" * size)).text() == str(size)
