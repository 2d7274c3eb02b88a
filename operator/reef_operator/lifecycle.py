"""Kopf: the operator's life cycle and its liveness probe. Watches are our own, in `runtime/watch.py`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import kopf

from reef_operator.connection.client import ApiError, Client
from reef_operator.connection.credentials import Login
from reef_operator.connection.limits import Backoff
from reef_operator.runtime.leases import WatchProof
from reef_operator.runtime.queue import Key

SILENCE_S = 360.0  # the API server ends every watch within five minutes, and the next one begins with a word
ANSWER_S = 4.0  # less than the kubelet waits for a probe


def kopf_settings() -> kopf.OperatorSettings:
    """Settings under which Kopf outlasts an API server that is away, and writes nothing itself."""
    settings = kopf.OperatorSettings()
    settings.peering.standalone = True
    settings.posting.enabled = False
    settings.scanning.disabled = True  # needs no rights to list namespaces and definitions
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.networking.error_backoffs = Backoff(first=1.0, limit=10.0)  # without end
    settings.networking.enforce_retry_after = True
    settings.process.ultimate_exiting_timeout = 20
    return settings


def registry(
    login: Login,
    client: Client,
    *,
    proof: WatchProof,
    canary: Key,
    silences: Callable[[], Mapping[str, float]],
    ended: Callable[[], Awaitable[None]],
) -> kopf.OperatorRegistry:
    """Kopf's handlers.

    Args:
        login: to the API server, which Kopf asks once what it serves.
        client: to see whether something that a watch missed is still there.
        proof: knows what the watches have delivered.
        canary: namespace and name of the Lease that is changed again and again.
        silences: for how many seconds each watch has heard nothing, by kind.
        ended: called when Kopf has been told to end; what still runs afterwards Kopf waits for.
    """
    made = kopf.OperatorRegistry()

    @kopf.on.login(registry=made)
    async def log_in(**_: Any) -> kopf.ConnectionInfo:
        return await login()

    @kopf.on.cleanup(registry=made)
    async def clean_up(**_: Any) -> None:
        await ended()

    @kopf.on.probe(registry=made, id="watch")
    async def probe(**_: Any) -> str:
        if fault := await fault_of(proof, client, canary, silences()):
            raise kopf.PermanentError(fault)  # any other exception would hang the request for a minute
        return "alive"

    return made


async def fault_of(proof: WatchProof, client: Client, canary: Key, silences: Mapping[str, float]) -> str:
    """Say what is wrong with the watches; empty when all is well, or when the API server is too slow to tell."""
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
