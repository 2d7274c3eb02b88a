"""Kopf: the operator's life cycle. Watches are our own, in `runtime/watch.py`, and so is what probes are told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import kopf

from reef_operator.connection.credentials import Login
from reef_operator.connection.limits import Backoff


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


def registry(login: Login, ended: Callable[[], Awaitable[None]]) -> kopf.OperatorRegistry:
    """Kopf's handlers.

    Args:
        login: to the API server, which Kopf asks once what it serves.
        ended: called when Kopf has been told to end; what still runs afterwards Kopf waits for.
    """
    made = kopf.OperatorRegistry()

    @kopf.on.login(registry=made)
    async def log_in(**_: Any) -> kopf.ConnectionInfo:
        return await login()

    @kopf.on.cleanup(registry=made)
    async def clean_up(**_: Any) -> None:
        await ended()

    return made
