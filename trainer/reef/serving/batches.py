"""Requests that come together are one forward pass."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from reef.errors import ConfigError
from reef.external.listening.refusals import BusyError
from reef.external.listening.together import settle
from reef.serving.finished import ActionRequest, ActionResponse

Act = Callable[[Sequence[ActionRequest]], list[ActionResponse | Exception]]


class Batches:
    """Acts in a thread of its own; what is asked meanwhile waits for the next forward pass."""

    def __init__(self, act: Act, most: int, observe: Callable[[int], None]) -> None:
        """`most`: observations that wait or are acted on, beyond one request; `observe`: called with a pass's size."""
        self._act, self._most, self._observe = act, most, observe
        self._waiting: list[tuple[ActionRequest, asyncio.Future[ActionResponse]]] = []
        self._working: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, "policy")
        self.observations = 0  # that wait or are acted on

    async def acted(self, asked: ActionRequest) -> ActionResponse:
        """The answer.

        Raises:
            BusyError: too many observations wait; one request may wait whatever is acted on meanwhile.
            ConfigError: a request has more observations than may ever wait, or the policy refuses one.
        """
        if len(asked) > self._most:
            raise ConfigError(f"{len(asked)} observations in one request: at most {self._most}.")
        if self._waiting and self.observations + len(asked) > self._most:
            raise BusyError(f"{self.observations} observations wait, at most {self._most} may")
        future: asyncio.Future[ActionResponse] = asyncio.get_running_loop().create_future()
        self._waiting.append((asked, future))
        self.observations += len(asked)
        if self._working is None:
            self._working = asyncio.create_task(self._work())
        return await future

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            batch, self._waiting = self._waiting, []
            size = sum(len(asked) for asked, _ in batch)
            self._observe(size)
            found: list[ActionResponse | Exception]
            try:
                found = await loop.run_in_executor(self._thread, self._act, [asked for asked, _ in batch])
            except Exception as error:  # or all later requests would wait for ever
                found = [error] * len(batch)
            self.observations -= size
            settle([future for _, future in batch], found)
        self._working = None

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()
