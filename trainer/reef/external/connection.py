"""A client's connection to a policy server: one at a time, which is opened again where it was closed."""

from __future__ import annotations

import http.client
import time
import uuid
from typing import Any, TypeVar
from urllib.parse import urlsplit

from reef.errors import ConfigError, EpisodeLostError, ExternalEpisodeError, PolicyServerError
from reef.external.wire import CONTENT_TYPE, REQUEST, VERSION, MessageError, decode, encode

M = TypeVar("M")
ANSWER_S = 60.0  # seconds in which an answer must come
FIRST_WAIT_S, LONGEST_WAIT_S = 0.05, 2.0
NOT_CONNECTED = (OSError, http.client.HTTPException)
ERRORS: dict[int, type[ConfigError | PolicyServerError]] = {
    400: ConfigError,
    404: EpisodeLostError,
    408: ConfigError,
    409: ExternalEpisodeError,
    413: ConfigError,
}
AGAIN = (429, 502, 503, 504)  # busy, or a proxy does not reach it


class Connection:
    """Sends messages, and returns the answers."""

    def __init__(self, address: str, token: str | None, timeout_s: float) -> None:
        """`timeout_s`: for which a server that is busy or not there is asked again; ConfigError for another value."""
        if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not timeout_s >= 0:
            raise ConfigError(f"timeout_s={timeout_s!r}: expected seconds from 0 on.")
        parts = urlsplit(address if "://" in address else f"http://{address}")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
            raise ConfigError(f"address={address!r}: expected the form 'http://host:port'.")
        self._address, self._timeout_s = f"{parts.scheme}://{parts.netloc}", timeout_s
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.hostname, parts.port, timeout=ANSWER_S)
        self._client, self._posted = uuid.uuid4().hex, 0
        self._headers = {"Content-Type": CONTENT_TYPE} | ({"Authorization": f"Bearer {token}"} if token else {})

    def post(self, path: str, message: Any, answer: type[M] | None) -> M:
        """Send a message; the answer is of the kind `answer`, or None. Sent again, it has the same number.

        Raises:
            ConfigError: the server found a value in it that is wrong.
            EpisodeLostError, ExternalEpisodeError: the episode is not open there, or is used in a wrong way.
            PolicyServerError: it refused or failed, with its traceback, or did not answer within the time.
        """
        try:
            body = encode(message)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ConfigError(f"it cannot be sent: {error}.") from error
        self._posted += 1
        return self._asked("POST", path, body, answer)

    def get(self, path: str, answer: type[M]) -> M:
        """Fetch something of the kind `answer`; raises as `post`."""
        return self._asked("GET", path, None, answer)

    def close(self) -> None:
        """Close it; the next message opens it again."""
        self._connection.close()

    def _asked(self, method: str, path: str, body: bytes | None, answer: type[M] | None) -> M:
        deadline, wait_s = time.monotonic() + self._timeout_s, FIRST_WAIT_S
        while True:
            try:
                status, headers, content = self._once(method, path, body)
            except NOT_CONNECTED as error:
                self.close()
                problem = f"it does not answer: {type(error).__name__}: {error}"
            else:
                if status not in AGAIN:
                    return self._result(status, content, answer)
                problem = content.decode("utf-8", "replace")
                asked_s = headers.get("Retry-After", "")
                wait_s = min(float(asked_s) if asked_s.isdecimal() else wait_s, LONGEST_WAIT_S)  # else a date
            if time.monotonic() + wait_s > deadline:
                raise PolicyServerError(f"policy server {self._address}: {problem}. Asked for {self._timeout_s:g} s.")
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)

    def _once(self, method: str, path: str, body: bytes | None) -> tuple[int, Any, bytes]:
        number = {REQUEST: f"{self._client}/{self._posted}"} if method == "POST" else {}
        self._connection.request(method, f"{VERSION}/{path}", body, self._headers | number)
        response = self._connection.getresponse()
        return response.status, response.headers, response.read()

    def _result(self, status: int, content: bytes, answer: type[M] | None) -> M:
        if status == 200:
            try:
                return decode(content, answer or type(None))  # type: ignore[return-value]
            except MessageError as error:
                raise PolicyServerError(f"policy server {self._address}: {error}. Is it one of Reef?") from error
        kind, text = ERRORS.get(status, PolicyServerError), content.decode("utf-8", "replace")
        raise kind(f"policy server {self._address} answered {status}: {text}")
