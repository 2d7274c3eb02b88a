"""The token that the clients of a server send."""

from __future__ import annotations

import base64
import hmac
import os
from pathlib import Path

from aiohttp import web

from reef.errors import ConfigError

# Begins the name of a subprotocol of a WebSocket, which goes on with the token in base64url.
TOKEN_PROTOCOL = "reef.token."  # noqa: S105


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
        self._is_required = token is not None
        self._expected = f"Bearer {token}".encode()
        self._protocol = TOKEN_PROTOCOL.encode() + base64.urlsafe_b64encode((token or "").encode()).rstrip(b"=")

    def refusal(self, request: web.Request) -> web.Response | None:
        """The answer to a request that lacks the token; None where it may be answered."""
        if not self._is_required or self._is_sent(request):
            return None
        return web.Response(status=401, text="the token is missing or wrong", headers={"WWW-Authenticate": "Bearer"})

    def _is_sent(self, request: web.Request) -> bool:
        if hmac.compare_digest(_bytes(request.headers.get("Authorization", "")), self._expected):
            return True
        # A page in a browser cannot set headers of its WebSocket, only name subprotocols.
        names = request.headers.get("Sec-WebSocket-Protocol", "").split(",")
        return any(hmac.compare_digest(_bytes(name.strip()), self._protocol) for name in names)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
