"""The token that the clients of a server send."""

from __future__ import annotations

import hmac
import os
from pathlib import Path

from aiohttp import web

from reef.errors import ConfigError


def read_token(env: str | None, file: str | None) -> str | None:
    """The token in an environment variable or a file; None where neither is named. ConfigError where it is not there.

    The value itself is no setting: settings are written to results and checkpoints.
    """
    if env is not None and file is not None:
        raise ConfigError(f"token_env={env!r}, token_file={file!r}: give one of them.")
    if env is not None:
        found, where = os.environ.get(env, ""), f"token_env={env!r}: the environment variable"
    elif file is not None:
        where = f"token_file={file!r}: the file"
        try:
            found = Path(file).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{where} cannot be read: {error}.") from error
    else:
        return None
    token = found.strip()
    if not token or not token.isascii() or not token.isprintable():
        raise ConfigError(f"{where} holds no token: put a long random text of ASCII characters there.")
    return token


class TokenCheck:
    """Compares the token of requests with the one that is expected, in constant time."""

    def __init__(self, token: str | None) -> None:
        """`token`: None lets every request in."""
        self._expected = None if token is None else f"Bearer {token}".encode()

    def refusal(self, request: web.Request) -> web.Response | None:
        """The answer to a request that lacks the token; None where it may be answered."""
        sent = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        if self._expected is None or hmac.compare_digest(sent, self._expected):
            return None
        return web.Response(status=401, text="the token is missing or wrong", headers={"WWW-Authenticate": "Bearer"})
