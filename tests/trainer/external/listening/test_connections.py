"""Connections at a server, of which there are not too many."""

from __future__ import annotations

import asyncio
import resource
import socket

import pytest
from aiohttp import web

from reef.errors import ConfigError
from reef.external.listening.connections import allow_connections, listening, serve

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def ok(_: web.BaseRequest) -> web.StreamResponse:
    return web.Response(text="ok")


def test_connections_that_come_at_the_same_time_are_bounded_too() -> None:
    async def talk() -> None:
        app = web.Application()
        app.router.add_get("/", ok)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        with listening("127.0.0.1", 0) as sock:
            burst = [socket.create_connection(sock.getsockname(), timeout=20) for _ in range(30)]
            server = await serve(runner, sock, connections=3)
            opened = [await asyncio.open_connection(sock=each) for each in burst]
            for _, writer in opened[:3]:
                writer.write(REQUEST)
            answers = [await asyncio.wait_for(reader.readline(), 20) for reader, _ in opened]
            assert [answer.split()[1] for answer in answers] == [b"200"] * 3 + [b"503"] * 27
            for _, writer in opened:
                writer.close()
            while runner.server and runner.server.connections:
                await asyncio.sleep(0.01)
            reader, writer = await asyncio.open_connection(*sock.getsockname())
            writer.write(REQUEST)
            assert b" 200 " in await asyncio.wait_for(reader.readline(), 20)
            writer.close()
            server.close()
            await runner.cleanup()

    asyncio.run(talk())


@pytest.mark.parametrize(("soft", "hard", "after"), [(600, 4096, 1500), (2000, 4096, 2000), (600, 1500, 1500)])
def test_the_soft_limit_of_files_is_raised_for_connections(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, after: int
) -> None:
    limits = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, given: limits.append(given))
    allow_connections(1000, "max_connections=1000")
    assert limits[-1] == (after, hard)


def test_a_hard_limit_of_files_that_is_too_low_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (600, 1024))
    with pytest.raises(ConfigError, match="max_connections=1000: each connection is a file.*1024. Give at most 524"):
        allow_connections(1000, "max_connections=1000")
