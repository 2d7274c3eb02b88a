"""The last answer to each client, which a repeated request gets again: it is not done twice."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

from reef.errors import ExternalEpisodeError
from reef.external.wire import REQUEST, MessageError

T = TypeVar("T")
LONGEST_CLIENT = 100  # characters


class LastAnswers(Generic[T]):
    """Does the numbered requests of each client once; a client has one request at a time."""

    def __init__(self, most_clients: int) -> None:
        """`most_clients`: of more, those that were idle the longest are forgotten."""
        self._most = most_clients
        self._last: OrderedDict[str, tuple[int, asyncio.Task[T] | None]] = OrderedDict()  # None: it failed

    async def once(self, request: str, work: Coroutine[Any, Any, T]) -> T:
        """What `work` returns, or what that of the same request (the value of the header `REQUEST`) did.

        It is done again where it failed: then it changed nothing. Raises MessageError for another form of the header,
        ExternalEpisodeError where a later request of the client came before.
        """
        try:
            client, number = numbered(request)
            last, task = self._last.get(client, (-1, None))
            if number < last:
                raise ExternalEpisodeError(f"{REQUEST}: {request!r} came after request {last} of that client.")
        except (MessageError, ExternalEpisodeError):
            work.close()
            raise
        if number == last and task is not None:
            work.close()
            return await asyncio.shield(task)
        task = asyncio.ensure_future(work)
        self._last[client] = number, task
        self._last.move_to_end(client)
        if len(self._last) > self._most:
            self._last.popitem(last=False)
        try:
            return await task
        except BaseException:  # its traceback holds the whole request
            if self._last.get(client) == (number, task):
                self._last[client] = number, None
            raise


def numbered(request: str) -> tuple[str, int]:
    """Client and number of a request; MessageError for another form."""
    client, _, number = request.rpartition("/")
    if not 0 < len(client) <= LONGEST_CLIENT or not (number.isascii() and number.isdigit() and len(number) < 19):
        raise MessageError(
            f"{REQUEST}: {request[:LONGEST_CLIENT]!r}: expected 'CLIENT/NUMBER', at most {LONGEST_CLIENT} characters "
            "and a whole number that grows with each request."
        )
    return client, int(number)
