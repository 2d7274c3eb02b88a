"""Connections at a server, of which there are not too many."""

from __future__ import annotations

import asyncio
import socket

from aiohttp import web

from reef.external.listening.connections import listening, serve

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
