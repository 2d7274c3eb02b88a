"""Bodies of requests that come in time, and that do not fill the memory together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from reef.external.listening.refusals import BusyError

ALL_BYTES = 256 * 2**20  # of the large bodies that a server holds
SMALL_BYTES = 64 * 2**10  # a body up to this size waits for none: connections bound how many there are
WAIT_S = 20.0  # seconds in which there must be room for a large body


async def body_of(request: web.Request, limit_s: float) -> bytes:
    """The body of a request; TimeoutError where it does not come within `limit_s` seconds."""
    async with asyncio.timeout(limit_s):
        return await request.read()


class BodyMemory:
    """Bounds the bytes of all large bodies of a server, from before the first byte until the answer is there."""

    def __init__(self, request_bytes: int, all_bytes: int = ALL_BYTES) -> None:
        """`request_bytes`: of the largest body that is read. There is always room for one of those."""
        self._request_bytes, self._free = request_bytes, max(all_bytes, request_bytes)
        self._freed = asyncio.Event()

    @asynccontextmanager
    async def room_for(self, request: web.Request) -> AsyncIterator[None]:
        """Hold room for the body during the block; it counts with the size that the client says it has.

        Raises HTTPRequestEntityTooLarge for a body that is too large, before any of it is read, and BusyError where
        the bodies of other requests leave no room for it.
        """
        size = self._counted(request)
        if size > self._free:
            await self._until_free(size)
        self._free -= size
        try:
            yield
        finally:
            self._free += size
            self._freed.set()

    async def _until_free(self, size: int) -> None:
        try:
            async with asyncio.timeout(WAIT_S):
                while size > self._free:
                    self._freed.clear()
                    await self._freed.wait()
        except TimeoutError as error:
            raise BusyError("the bodies of other requests leave no room for one of this size") from error

    def _counted(self, request: web.Request) -> int:
        size = request.content_length
        if size is None:  # in chunks of which nobody knows how many come
            return self._request_bytes if request.body_exists else 0
        if size > self._request_bytes:
            raise web.HTTPRequestEntityTooLarge(max_size=self._request_bytes, actual_size=size)
        return size if size > SMALL_BYTES else 0
