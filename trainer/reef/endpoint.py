"""A small HTTP server for answers that can be read and nothing else: one thread, however many connections there are.

Everybody in the cluster's network may reach it. So connections are few, requests small, and time is limited in all, not
from byte to byte. It uses the standard library alone: the operator's image holds no more.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

CONNECTIONS = 32  # for one more, the oldest is closed: a client that means well is answered in milliseconds
REQUEST_BYTES = 8192
REQUEST_S = 10.0  # for a request and its answer
COMPRESSED_BYTES = 4096  # answers from this size on are compressed for those who ask for it


@dataclass(frozen=True, slots=True)
class Answer:
    """What is sent back."""

    body: bytes
    content_type: str = "text/plain"
    status: HTTPStatus = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict)

    def encoded(self, compress: bool) -> bytes:
        """The answer as it is sent, after which the connection is closed."""
        body, headers = self.body, {"Content-Type": self.content_type, **self.headers, "Connection": "close"}
        if compress and len(body) >= COMPRESSED_BYTES:
            body, headers = gzip.compress(body, compresslevel=1), headers | {"Content-Encoding": "gzip"}
        lines = [f"HTTP/1.1 {self.status.value} {self.status.phrase}"]
        lines += [f"{name}: {value}" for name, value in {**headers, "Content-Length": str(len(body))}.items()]
        return "\r\n".join([*lines, "\r\n"]).encode("latin-1") + body


class Endpoint:
    """Answers GET requests from a thread of its own."""

    def __init__(self, address: str, port: int, answer: Callable[[str], Answer]) -> None:
        """Listen at once (port 0: any free one, see `port`) at an IPv4 or IPv6 address; `answer(path)` is called there.

        Raises:
            OSError, OverflowError: the port is taken, or is none.
        """
        self._answer = answer
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        both = address == "::" and socket.has_dualstack_ipv6()
        self._socket = socket.create_server((address, port), family=family, dualstack_ipv6=both, backlog=CONNECTIONS)
        self.port: int = self._socket.getsockname()[1]
        self._open: dict[asyncio.Task[None], None] = {}  # oldest first
        self._loop, self._stopping = asyncio.new_event_loop(), asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="endpoint", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close all connections and wait for the thread."""
        with contextlib.suppress(RuntimeError):  # stopped before
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def _run(self) -> None:
        with self._socket, contextlib.closing(self._loop):
            self._loop.run_until_complete(self._serve_until_stopped())

    async def _serve_until_stopped(self) -> None:
        server = await asyncio.start_server(self._serve, sock=self._socket, limit=REQUEST_BYTES)
        await self._stopping.wait()
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0)  # aborted connections are closed in the loop's next turn

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._open) >= CONNECTIONS:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.cancel()
        self._open[task] = None
        try:
            async with asyncio.timeout(REQUEST_S):
                writer.write(await self._answered(reader))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, EOFError, asyncio.CancelledError):  # a TimeoutError is an OSError
            pass
        finally:
            self._open.pop(task, None)
            writer.transport.abort()

    async def _answered(self, reader: asyncio.StreamReader) -> bytes:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except asyncio.LimitOverrunError:
            text = f"a request may have {REQUEST_BYTES} bytes\n".encode()
            return Answer(text, status=HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE).encoded(False)
        first, _, headers = head.partition("\r\n")
        method, _, rest = first.partition(" ")
        if method != "GET":
            return Answer(b"only GET is answered\n", status=HTTPStatus.METHOD_NOT_ALLOWED).encoded(False)
        accepted = [line for line in headers.lower().splitlines() if line.startswith("accept-encoding:")]
        path = rest.partition(" ")[0].partition("?")[0]
        return self._answer(path).encoded(any("gzip" in line for line in accepted))
