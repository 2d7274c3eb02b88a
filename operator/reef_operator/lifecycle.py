"""The operator's life cycle with Kopf. Watches and health checks are our own: `runtime/watch.py` and `health.py`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import kopf

from reef_operator.connection.credentials import Login
from reef_operator.connection.limits import Backoff


def kopf_settings() -> kopf.OperatorSettings:
    """Return settings with which Kopf survives an unavailable API server and writes nothing itself."""
    settings = kopf.OperatorSettings()
    settings.peering.standalone = True
    settings.posting.enabled = False
    # Scanning needs the permission to list namespaces and definitions.
    settings.scanning.disabled = True
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.networking.error_backoffs = Backoff(first=1.0, limit=10.0)  # without end
    settings.networking.enforce_retry_after = True
    settings.process.ultimate_exiting_timeout = 20
    return settings


def registry(login: Login, ended: Callable[[], Awaitable[None]]) -> kopf.OperatorRegistry:
    """Return Kopf's handlers.

    Args:
        login: logs in to the API server; Kopf asks it once which resources it serves.
        ended: called when Kopf is stopping; Kopf waits for it.
    """
    made = kopf.OperatorRegistry()

    @kopf.on.login(registry=made)
    async def log_in(**_: Any) -> kopf.ConnectionInfo:
        return await login()

    @kopf.on.cleanup(registry=made)
    async def clean_up(**_: Any) -> None:
        await ended()

    return made
