"""WebSockets at which clients ask for actions: several requests under way, and answers in their order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from aiohttp import WSCloseCode, WSMsgType, web

from reef.external.wire import CONTENT_TYPE as MSGPACK
from reef.serving.messages import JSON

PROTOCOL = "reef"  # the subprotocol, for clients that name one
IN_FLIGHT = 32  # requests of one connection, or as many bytes as its largest message has; more are read later
TAKEN_S = 30.0  # seconds in which a client must take an answer
PING_S = 30.0  # seconds without a message after which a client is asked whether it is there
CLOSING_S = 2.0  # seconds in which a client must confirm the end
KINDS = {WSMsgType.TEXT: JSON, WSMsgType.BINARY: MSGPACK}
FRAMES = {kind: frame for frame, kind in KINDS.items()}
# a message and its content type -> the answer
Respond = Callable[[bytes, str], Coroutine[Any, Any, bytes]]
Socket = Any  # aiohttp's WebSocketResponse, of which each message is bytes


class UnderWay:
    """The requests of one connection whose answers were not taken yet, in the order of both."""

    def __init__(self, most_bytes: int) -> None:
        """`most_bytes`: from which on no more is read."""
        self._most_bytes, self._bytes, self._count = most_bytes, 0, 0
        self._answers: asyncio.Queue[tuple[str, int, asyncio.Task[bytes]] | None] = asyncio.Queue()
        self._taken = asyncio.Event()

    async def until_room(self) -> None:
        """Wait until another request may be read."""
        while self._count >= IN_FLIGHT or self._bytes >= self._most_bytes:
            self._taken.clear()
            await self._taken.wait()

    def add(self, kind: str, size: int, answer: asyncio.Task[bytes]) -> None:
        """Add a request of this content type and size."""
        self._count, self._bytes = self._count + 1, self._bytes + size
        self._answers.put_nowait((kind, size, answer))

    def end(self) -> None:
        """No more requests come."""
        self._answers.put_nowait(None)

    async def send(self, socket: Socket) -> None:
        """Send the answers until the end; TimeoutError where the client does not take one."""
        while (found := await self._answers.get()) is not None:
            kind, size, answer = found
            body = await answer
            async with asyncio.timeout(TAKEN_S):
                await socket.send_frame(body, FRAMES[kind])
            self._count, self._bytes = self._count - 1, self._bytes - size
            self._taken.set()


async def opened(request: web.Request, message_bytes: int) -> Socket:
    """The WebSocket that the request asks for; `message_bytes`: of the largest message that is read.

    Raises an HTTPException where it asks for none.
    """
    if request.headers.get("Upgrade", "").lower() != "websocket":
        raise web.HTTPMethodNotAllowed(request.method, ["POST"])
    socket = web.WebSocketResponse(
        timeout=CLOSING_S,
        heartbeat=PING_S,
        protocols=[PROTOCOL],
        compress=False,  # a message takes the bytes that were sent
        max_msg_size=message_bytes,
        decode_text=False,
    )
    await socket.prepare(request)
    return socket


class ActionSockets:
    """Answers the messages of each WebSocket in their order, until either side closes it."""

    def __init__(self, respond: Respond, message_bytes: int) -> None:
        """`respond` returns an answer for a message that is wrong, too; `message_bytes`: of the largest message."""
        self._respond, self._message_bytes = respond, message_bytes
        self._readers: set[asyncio.Task[None]] = set()

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Answer what comes; a client that does not take its answers is cut off. Raises as `opened`."""
        socket = await opened(request, self._message_bytes)
        try:
            await self._answer(socket)
        except* (ConnectionError, TimeoutError):
            if request.transport is not None:
                request.transport.abort()  # with what waits there to be sent
        return socket  # type: ignore[no-any-return]

    def close(self) -> None:
        """Read nothing more, answer what was asked, and close all."""
        for reader in self._readers:
            reader.cancel()

    async def _answer(self, socket: Socket) -> None:
        requests = UnderWay(self._message_bytes)
        async with asyncio.TaskGroup() as group:
            group.create_task(requests.send(socket))
            reader = group.create_task(self._read(socket, requests, group))
            self._readers.add(reader)
            reader.add_done_callback(self._readers.discard)
            await asyncio.wait([reader])
            requests.end()
        await socket.close(code=WSCloseCode.GOING_AWAY)

    async def _read(self, socket: Socket, requests: UnderWay, group: asyncio.TaskGroup) -> None:
        while True:
            await requests.until_room()
            message = await socket.receive()
            if (kind := KINDS.get(message.type)) is None:
                return  # it was closed
            requests.add(kind, len(message.data), group.create_task(self._respond(message.data, kind)))
