"""Which requests a server answers: those with the token, and where there is none, those that name no other page."""

from __future__ import annotations

import base64
import hmac
import os
from pathlib import Path
from urllib.parse import urlsplit

from aiohttp import web

from reef.errors import ConfigError
from reef.external.listening.connections import is_loopback

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
    """Compares the token of requests with the one that is expected, in constant time.

    Where none is expected, only the address keeps others out. A browser on this machine reaches it for any page. With
    what writes, and for a WebSocket, it says in `Origin` which: it must be one of this server, under a name that is of
    this machine alone. It does not with a GET of a page whose name was made to lead here, which can read.
    """

    def __init__(self, token: str | None) -> None:
        """`token`: None lets every request in that no page of another server sends."""
        self._is_required = token is not None
        self._expected = f"Bearer {token}".encode()
        self._protocol = TOKEN_PROTOCOL.encode() + base64.urlsafe_b64encode((token or "").encode()).rstrip(b"=")

    def refusal(self, request: web.Request) -> web.Response | None:
        """The answer to a request that may not be answered otherwise; None where it may."""
        if not self._is_required:
            origin = request.headers.get("Origin")
            if origin is None or _is_own_page(origin, request.host):
                return None
            text = f"Origin: {origin!a}: the page is not this server's own under a loopback name"
            return web.Response(status=403, text=text)
        if self._is_sent(request):
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


def _is_own_page(origin: str, host: str) -> bool:
    try:
        page = urlsplit(origin)
        name = page.hostname or ""
    except ValueError:
        return False
    return page.netloc == host and is_loopback(name)  # anybody's name may lead to the address of this machine
