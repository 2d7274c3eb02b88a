"""Errors that a client can repair, or that a later request does not have, as answers of a server."""

from __future__ import annotations

from aiohttp import web

from reef.errors import ConfigError, EpisodeLostError, ExternalEpisodeError
from reef.external.wire import MessageError

IDLE_S = 60.0  # seconds after which a connection without a request is closed; a client opens it again
BODY_S = 30.0  # seconds in which the body of a request must come
RETRY_AFTER_S = 1


class BusyError(Exception):
    """There is no room now; the client is to try again."""


# the first that an error is an instance of
STATUSES = {EpisodeLostError: 404, ExternalEpisodeError: 409, MessageError: 400, ConfigError: 400}


def refused(error: Exception) -> web.Response | None:
    """The answer to a request that has this error; None: the server failed."""
    if isinstance(error, BusyError):
        return web.Response(status=429, text=str(error), headers={"Retry-After": str(RETRY_AFTER_S)})
    if isinstance(error, TimeoutError):
        return web.Response(status=408, text=f"the body did not come within {BODY_S:g} s")
    status = next((status for kind, status in STATUSES.items() if isinstance(error, kind)), None)
    return None if status is None else web.Response(status=status, text=str(error))
