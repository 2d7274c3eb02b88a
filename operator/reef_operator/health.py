"""Liveness of the operator. Probes read the newest check, so any number of probes costs the operator no extra work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

from reef.endpoint import Answer
from reef_operator.connection.client import ApiError, Client
from reef_operator.runtime.leases import WatchProof
from reef_operator.runtime.queue import Key

# The API server ends every watch within five minutes, and the next watch begins with an answer.
SILENCE_S = 360.0
ANSWER_S = 4.0  # limit for one check
PAUSE_S = 2.0  # between two checks
# After this time without a check, something blocks the event loop and with it all work.
STILL_S = 20.0


class Health:
    """The newest check of the operator, for probes.

    Args:
        clock: monotonic time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._newest = (clock(), "")  # time of the newest check, and the fault it found

    async def run(self, look: Callable[[], Awaitable[str]]) -> None:
        """Call `look` repeatedly until cancelled; it returns what is wrong, or an empty string."""
        while True:
            fault = await look()
            self._newest = (self._clock(), fault)
            await asyncio.sleep(PAUSE_S)

    def answer(self, path: str) -> Answer:
        """Return 200, or 500 with what is wrong; callable from any thread."""
        if path != "/healthz":
            return Answer(b"see /healthz\n", status=HTTPStatus.NOT_FOUND)
        (looked, fault), now = self._newest, self._clock()
        if now - looked > STILL_S:
            fault = f"nothing was done for {now - looked:.0f} s"
        status = HTTPStatus.INTERNAL_SERVER_ERROR if fault else HTTPStatus.OK
        return Answer(f"{fault or 'alive'}\n".encode(), status=status)


async def nothing_wrong() -> str:
    """Return no fault: an operator that waits for leadership is healthy."""
    return ""


async def fault_of(proof: WatchProof, client: Client, canary: Key, silences: Mapping[str, float]) -> str:
    """Return what is wrong with the watches; empty when all is well, or when the API server is too slow to check.

    Args:
        proof: records what the watches have delivered.
        client: checks whether an object that a watch missed still exists.
        canary: namespace and name of the Lease that is updated regularly.
        silences: seconds since each watch last heard from the server, by kind.
    """
    try:
        async with asyncio.timeout(ANSWER_S):
            return await proof.fault(client) or await silence(client, canary, silences)
    except TimeoutError:
        return ""


async def silence(client: Client, canary: Key, silences: Mapping[str, float]) -> str:
    """Return which watch is silent although the API server answers; empty when all is well."""
    kind, seconds = max(silences.items(), key=lambda each: each[1], default=("", 0.0))
    if seconds <= SILENCE_S:
        return ""
    try:
        await client.get("Lease", *canary)
    except ApiError as error:
        # Where the operator has no access to the canary's namespace, a 403 is an answer too.
        if error.status != 403:
            return ""
    return f"the watch of {kind} has heard nothing for {seconds:.0f} s"
