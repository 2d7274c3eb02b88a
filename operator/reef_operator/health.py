"""What probes are told: whether the operator does its work. Asked by everybody's probe, it costs the work nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

from reef.endpoint import Answer
from reef_operator.connection.client import ApiError, Client
from reef_operator.runtime.leases import WatchProof
from reef_operator.runtime.queue import Key

SILENCE_S = 360.0  # the API server ends every watch within five minutes, and the next one begins with a word
ANSWER_S = 4.0  # for one look
PAUSE_S = 2.0  # between two looks
STILL_S = 20.0  # longest time without a look: then something holds up the event loop, and all work with it


class Health:
    """The newest look at the operator, told to probes.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._newest = (clock(), "")  # when it was looked last, and what was wrong

    async def run(self, look: Callable[[], Awaitable[str]]) -> None:
        """Look again and again until cancelled; `look` says what is wrong, or nothing."""
        while True:
            fault = await look()
            self._newest = (self._clock(), fault)
            await asyncio.sleep(PAUSE_S)

    def answer(self, path: str) -> Answer:
        """200, or 500 with what is wrong; from any thread."""
        if path != "/healthz":
            return Answer(b"see /healthz\n", status=HTTPStatus.NOT_FOUND)
        (looked, fault), now = self._newest, self._clock()
        if now - looked > STILL_S:
            fault = f"nothing was done for {now - looked:.0f} s"
        status = HTTPStatus.INTERNAL_SERVER_ERROR if fault else HTTPStatus.OK
        return Answer(f"{fault or 'alive'}\n".encode(), status=status)


async def nothing_wrong() -> str:
    """How an operator is that only waits for its turn."""
    return ""


async def fault_of(proof: WatchProof, client: Client, canary: Key, silences: Mapping[str, float]) -> str:
    """Say what is wrong with the watches; empty when all is well, or when the API server is too slow to tell.

    Args:
        proof: knows what the watches have delivered.
        client: to see whether something that a watch missed is still there.
        canary: namespace and name of the Lease that is changed again and again.
        silences: for how many seconds each watch has heard nothing, by kind.
    """
    try:
        async with asyncio.timeout(ANSWER_S):
            return await proof.fault(client) or await silence(client, canary, silences)
    except TimeoutError:
        return ""


async def silence(client: Client, canary: Key, silences: Mapping[str, float]) -> str:
    """Say which watch has been silent for longer than the API server is, which answers; empty when all is well."""
    kind, seconds = max(silences.items(), key=lambda each: each[1], default=("", 0.0))
    if seconds <= SILENCE_S:
        return ""
    try:
        await client.get("Lease", *canary)
    except ApiError as error:
        if error.status != 403:  # where the canary's namespace is closed, this is an answer
            return ""
    return f"the watch of {kind} has heard nothing for {seconds:.0f} s"
