"""A server of a finished policy in this process, and a client that asks it for actions."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import msgspec
import pytest

from reef.external.listening.connections import listening
from reef.external.wire import encode
from reef.serving.finished import FinishedPolicy
from reef.serving.server import FinishedPolicyServer, ServingLimits

JSON, MSGPACK = "application/json", "application/msgpack"
OBS = [0.1, -0.2, 0.03, 0.4]  # of CartPole
Ask = Callable[..., Awaitable[tuple[int, Any]]]


def served(
    policy: FinishedPolicy,
    talk: Callable[[aiohttp.ClientSession, Ask], Awaitable[Any]],
    *,
    token: str | None = None,
    connections: int = 50,
    request_bytes: int = 10_000,
    queued: int = 100,
    play: bool = False,
) -> Any:
    """What `talk` returns, which is called with a client, and a function that asks for actions."""

    async def both() -> Any:
        with listening("127.0.0.1", 0) as sock:
            ready = asyncio.Event()
            own = FinishedPolicyServer(policy, ServingLimits(connections, request_bytes, queued), token, play=play)
            running = asyncio.create_task(own.run(sock, ready.set))
            await ready.wait()
            address = f"http://127.0.0.1:{sock.getsockname()[1]}"
            async with aiohttp.ClientSession(address, timeout=aiohttp.ClientTimeout(20)) as client:

                async def ask(message: Any, kind: str = JSON, **headers: str) -> tuple[int, Any]:
                    body = message if isinstance(message, bytes) else encoded(message, kind)
                    found = await client.post("/v1/actions", data=body, headers={"Content-Type": kind} | headers)
                    content = await found.read()
                    if found.status != 200:
                        return found.status, content.decode()
                    assert found.content_type == kind
                    return 200, decoded(content, kind)

                try:
                    return await talk(client, ask)
                finally:
                    if not running.done():
                        os.kill(os.getpid(), signal.SIGTERM)
                    await running

    return asyncio.run(both())


def encoded(message: Any, kind: str) -> bytes:
    """A message as bytes."""
    return encode(message) if kind == MSGPACK else json.dumps(message).encode()


def decoded(content: bytes, kind: str) -> Any:
    """The message in the bytes."""
    return (msgspec.json if kind == JSON else msgspec.msgpack).decode(content)


class Held:
    """The policy's `act`, which waits until it is let go."""

    def __init__(self, policy: FinishedPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go_on, self.sizes, self._act = threading.Event(), threading.Event(), [], policy.act
        monkeypatch.setattr(policy, "act", self)

    def __call__(self, asked: Any) -> Any:
        self.sizes.append(sum(map(len, asked)))
        self.begun.set()
        assert self.go_on.wait(20)
        return self._act(asked)

    async def until_begun(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self.begun.wait, 20)
