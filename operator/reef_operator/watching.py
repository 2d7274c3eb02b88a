"""Kopf: it watches RLTrainingJobs and says that it is alive. Its handlers keep what they are told and queue the key."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import kopf

from reef_operator.runtime.client import PAGE, ApiError, Client
from reef_operator.runtime.credentials import Login
from reef_operator.runtime.leases import WatchProof
from reef_operator.runtime.limits import Backoff
from reef_operator.runtime.queue import Key
from reef_operator.runtime.watch import Store, key_of, trim_whole

JOBS = ("reef.dev", "v1", "rltrainingjobs")
SILENCE_S = 360.0  # the API server ends every watch within five minutes, and the next one begins with a word
ANSWER_S = 4.0  # less than the kubelet waits for a probe
LEASES = ("coordination.k8s.io", "v1", "leases")


def kopf_settings(canary: str) -> kopf.OperatorSettings:
    """Settings under which Kopf outlasts an API server that is away, and writes nothing itself.

    Args:
        canary: name of the one Lease that is watched.
    """
    settings = kopf.OperatorSettings()
    settings.peering.standalone = True
    settings.posting.enabled = False
    settings.scanning.disabled = True  # needs no rights to list namespaces and definitions
    settings.watching.server_timeout = 270
    settings.watching.client_timeout = 300
    settings.watching.connect_timeout = 30
    settings.watching.inactivity_timeout = 70
    settings.watching.chunk_size = PAGE
    settings.watching.field_selectors[LEASES] = f"metadata.name={canary}"
    settings.queueing.worker_limit = 100
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.networking.error_backoffs = Backoff(first=1.0, limit=10.0)  # without end: a watch that gives up stays dead
    settings.networking.enforce_retry_after = True
    settings.execution.default_backoff = 10
    settings.persistence.finalizer = "reef.dev/unused"  # handlers of events need none
    settings.process.ultimate_exiting_timeout = 20
    return settings


def registry(
    login: Login,
    client: Client,
    *,
    jobs: Store,
    changed: Callable[[Key], None],
    proof: WatchProof,
    canary: Key,
    silences: Callable[[], Mapping[str, float]],
    ended: Callable[[], Awaitable[None]],
) -> kopf.OperatorRegistry:
    """Kopf's handlers.

    Args:
        login: to the API server.
        client: to see whether something that a watch missed is still there.
        jobs: is kept true.
        changed: told the key of every job that came, changed or went.
        proof: told what the watches deliver.
        canary: namespace and name of the Lease that is changed again and again.
        silences: for how many seconds each other watch has heard nothing, by kind.
        ended: called when Kopf has been told to end; what still runs afterwards Kopf waits for.
    """
    made = kopf.OperatorRegistry()

    @kopf.on.login(registry=made)
    async def log_in(**_: Any) -> kopf.ConnectionInfo:
        return await login()

    @kopf.on.cleanup(registry=made)
    async def clean_up(**_: Any) -> None:
        await ended()

    @kopf.on.event(*JOBS, registry=made)
    async def job_event(event: Mapping[str, Any], **_: Any) -> None:
        job = trim_whole(event["object"])
        gone = event["type"] == "DELETED"
        proof.saw(job, gone=gone, listed=event["type"] is None)
        if gone:
            jobs.remove(job)
        elif not jobs.put(job):  # what we wrote ourselves comes back
            return
        changed(key_of(job))

    @kopf.on.event(*LEASES, registry=made)
    async def canary_event(event: Mapping[str, Any], **_: Any) -> None:
        if key_of(event["object"]) == canary:
            proof.saw(event["object"], gone=event["type"] == "DELETED", listed=event["type"] is None)

    @kopf.on.probe(registry=made, id="watch")
    async def probe(**_: Any) -> str:
        fault = await proof.fault(client) or await silence(client, canary, silences())
        if fault:
            raise kopf.PermanentError(fault)  # any other exception would hang the request for a minute
        return "alive"

    return made


async def silence(client: Client, canary: Key, silences: Mapping[str, float]) -> str:
    """Say which watch has been silent for longer than the API server is, which answers; empty when all is well."""
    kind, seconds = max(silences.items(), key=lambda each: each[1], default=("", 0.0))
    if seconds <= SILENCE_S:
        return ""
    try:
        async with asyncio.timeout(ANSWER_S):
            await client.get("Lease", *canary)
    except TimeoutError:
        return ""
    except ApiError as error:
        if error.status != 403:  # where the canary's namespace is closed, this is an answer
            return ""
    return f"the watch of {kind} has heard nothing for {seconds:.0f} s"
