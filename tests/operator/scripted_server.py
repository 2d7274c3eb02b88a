"""A real HTTP server on loopback that answers as scripted, and says what it was asked: for protocols, not a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import kopf
import pytest
from aiohttp import web

from reef_operator.connection.client import Client
from reef_operator.connection.credentials import Credentials

LIMIT_S = 20


@dataclass
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


Answer = Callable[[web.Request, Request], Awaitable[web.StreamResponse]]


@dataclass
class Server:
    """Answers of each (method, path) in turn; the last one again and again."""

    requests: list[Request] = field(default_factory=list)
    port: int = 0
    _answers: dict[tuple[str, str], list[Answer]] = field(default_factory=dict)

    def on(
        self, method: str, path: str, *answers: Any, status: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        """Script answers: JSON bodies, exceptions to raise (web.HTTPException) or functions that stream."""
        made = [each if callable(each) else as_answer(each, status, headers or {}) for each in answers]
        self._answers.setdefault((method, path), []).extend(made)

    def unless_scripted(self, method: str, path: str, answer: Any) -> None:
        if (method, path) not in self._answers:
            self.on(method, path, answer)

    def asked(self, method: str, path: str = "") -> list[Request]:
        return [each for each in self.requests if each.method == method and path in each.path]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        text = await request.text()
        seen = Request(
            request.method,
            request.path,
            dict(request.query),
            dict(request.headers),
            json.loads(text) if text else None,
        )
        self.requests.append(seen)
        answers = self._answers.get((request.method, request.path))
        if not answers:
            return web.json_response({"reason": "NotFound", "message": "not scripted"}, status=404)
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        return await answer(request, seen)


def as_answer(body: Any, status: int, headers: dict[str, str]) -> Answer:
    async def answer(_: web.Request, __: Request) -> web.StreamResponse:
        return web.json_response(body, status=status, headers=headers)

    return answer


def stream(*events: Any, hold: asyncio.Event | None = None, pieces: int = 0) -> Answer:
    """A watch: one JSON document per line, in chunks; then it ends, or stays open until `hold` is set."""

    async def answer(request: web.Request, _: Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        for event in events:
            line = json.dumps(event).encode() + b"\n"
            step = pieces or len(line)
            for start in range(0, len(line), step):  # a chunk need not end where a line does
                await response.write(line[start : start + step])
                await asyncio.sleep(0)
        if hold is not None:
            with contextlib.suppress(ConnectionError):
                await hold.wait()
        return response

    return answer


@contextlib.asynccontextmanager
async def serving(server: Server) -> AsyncIterator[Server]:
    application = web.Application(client_max_size=10**8)
    application.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.port = runner.addresses[0][1]
    try:
        yield server
    finally:
        await runner.cleanup()


@dataclass
class Rig:
    """A server and a client of it."""

    server: Server
    client: Client
    answered: list[tuple[str, str]]
    logins: list[str]
    skipped: list[str]


def as_rig(test: Callable[[Rig], Awaitable[None]]) -> None:
    """Run a test's coroutine against a fresh server, within the time limit."""

    async def run() -> None:
        answered: list[tuple[str, str]] = []
        logins: list[str] = []
        skipped: list[str] = []
        async with asyncio.timeout(LIMIT_S), serving(Server()) as server:

            async def login() -> kopf.ConnectionInfo:
                logins.append(f"token-{len(logins) + 1}")
                return kopf.ConnectionInfo(server=f"http://127.0.0.1:{server.port}/", scheme="Bearer", token=logins[-1])

            client = Client(
                Credentials(login),
                observe=lambda verb, code: answered.append((verb, code)),
                skipped=skipped.append,
            )
            async with client:
                await test(Rig(server, client, answered, logins, skipped))

    asyncio.run(run())


async def until(holds: Callable[[], bool], what: str = "") -> None:
    """Wait until something holds."""
    for _ in range(LIMIT_S * 200):
        if holds():
            return
        await asyncio.sleep(0.005)
    raise AssertionError(f"never happened: {what}")


@pytest.fixture
def rig() -> Callable[[Callable[[Rig], Awaitable[None]]], None]:
    return as_rig


@pytest.fixture
def watch_stream() -> Callable[..., Answer]:
    return stream


@pytest.fixture
def eventually() -> Callable[..., Awaitable[None]]:
    return until
