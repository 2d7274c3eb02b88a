"""The API server as raw JSON: limits on every call, a token bucket, retries; no models."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self

import aiohttp

from reef_operator.connection.credentials import Credentials
from reef_operator.connection.decoding import decoded, decoded_list
from reef_operator.connection.limits import Backoff, TokenBucket
from reef_operator.model import Object, Server

RESOURCES = {
    "ConfigMap": ("/api/v1", "configmaps"),
    "Secret": ("/api/v1", "secrets"),
    "Service": ("/api/v1", "services"),
    "Pod": ("/api/v1", "pods"),
    "Event": ("/api/v1", "events"),
    "NetworkPolicy": ("/apis/networking.k8s.io/v1", "networkpolicies"),
    "Job": ("/apis/batch/v1", "jobs"),
    "Deployment": ("/apis/apps/v1", "deployments"),
    "Lease": ("/apis/coordination.k8s.io/v1", "leases"),
    "RLTrainingJob": ("/apis/reef.dev/v1", "rltrainingjobs"),
}
TIMEOUT_S = 30.0
PAGE = 50  # objects
PAGE_BYTES = 8 * 2**20  # a page that is longer is asked for again in smaller ones
ATTEMPTS = 4
LONGEST_RETRY_AFTER_S = 30.0
SILENCE_S = 70.0  # bookmarks come once a minute
TRANSIENT = {429, 500, 502, 503, 504}
NETWORK_ERRORS = (aiohttp.ClientError, OSError, asyncio.TimeoutError)

Keep = Callable[[Mapping[str, Any]], Object]  # makes of an object what is kept of it

logger = logging.getLogger(__name__)


class ApiError(Exception):
    """The API server refused a request, or could not be reached (status 0)."""

    explained = True

    def __init__(self, status: int, reason: str, message: str, request: str = "") -> None:
        super().__init__(f"{request}: {message}" if request else message)
        self.status = status
        self.reason = reason
        self.message = message  # the server's own words


class TooLongError(Exception):
    """An answer is longer than its limit."""


@dataclass(frozen=True)
class Page:
    """A part of a list; `version` is that of the whole list."""

    items: list[Object]
    version: str


def path_of(kind: str, namespace: str | None, name: str = "", subresource: str = "") -> str:
    """Path of a kind in a namespace, or in all of them (None), or of one object or its subresource."""
    root, plural = RESOURCES[kind]
    parts = [root, *(["namespaces", namespace] if namespace else []), plural, name, subresource]
    return "/".join(part for part in parts if part)


class Client:
    """Requests to the API server; used as an asynchronous context.

    Args:
        credentials: address and identity.
        rate: requests per second that are allowed on average.
        burst: requests that are allowed at once after a pause.
        observe: told verb and HTTP code of every answer ("error" when there was none).
        skipped: told the kind of every object that was left out because it could not be read.
        may_write: asked before everything that would change the cluster, and again before each repetition of it.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        rate: float = 100.0,
        burst: int = 200,
        observe: Callable[[str, str], None] = lambda verb, code: None,
        skipped: Callable[[str], None] = lambda kind: None,
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        self._credentials = credentials
        self._bucket = TokenBucket(rate, burst)
        self._observe = observe
        self._skipped = skipped
        self._may_write = may_write
        self._backoff = Backoff(first=0.2, limit=2.0)
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """One object; None when there is none of this name."""
        try:
            return await self._request("get", "GET", path_of(kind, namespace, name))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def listed(self, kind: str, namespace: str, name: str) -> Object | None:
        """As `get`, by the rights that a watch needs."""
        found = [item async for page in self.pages(kind, namespace, name=name) for item in page.items]
        return found[0] if found else None

    async def pages(
        self, kind: str, namespace: str | None, selector: str = "", *, name: str = "", keep: Keep = dict
    ) -> AsyncIterator[Page]:
        """A list in parts, so that a big one is never held as a whole.

        Args:
            kind: of the objects.
            namespace: of the objects; None for all of them.
            selector: of labels.
            name: of the one object to list.
            keep: what of each is returned.
        """
        path, query, size = path_of(kind, namespace), selection(selector, name), PAGE
        while True:
            query["limit"] = str(size)
            try:
                content = await self._answer("list", "GET", path, query=query, limit=PAGE_BYTES if size > 1 else None)
            except TooLongError:
                size = max(1, size // 5)
                continue
            try:
                items, metadata = decoded_list(content, partial(self._kept, kind, keep))
            except ValueError as error:
                raise unreadable("GET", path, error) from None
            del content
            yield Page(items, metadata.get("resourceVersion", ""))
            if not metadata.get("continue"):
                return
            query["continue"] = metadata["continue"]

    def _kept(self, kind: str, keep: Keep, found: Any) -> Object | None:
        """What is kept of an object; None for one that cannot be read, so that it stops no other."""
        try:
            return keep(found)
        except Exception:
            self._skipped(kind)
            logger.exception("a %s is left out, as it cannot be read", kind)
            return None

    async def list(self, kind: str, namespace: str | None, selector: str = "") -> list[Object]:
        """All objects that the label selector matches."""
        return [item async for page in self.pages(kind, namespace, selector) for item in page.items]

    async def create(self, kind: str, namespace: str, body: Object) -> Object | None:
        """Make an object; None when one of this name is there already."""
        try:
            return await self._request("create", "POST", path_of(kind, namespace), body=body)
        except ApiError as error:
            if error.reason == "AlreadyExists":  # another 409 says that a quota was changed meanwhile
                return None
            raise

    async def patch(self, kind: str, namespace: str, name: str, body: Object, *, subresource: str = "") -> Object:
        """Change fields of an object or of its subresource (JSON merge patch: null removes)."""
        return await self._request("patch", "PATCH", path_of(kind, namespace, name, subresource), body=body)

    async def delete(self, kind: str, namespace: str, name: str, uid: str, *, foreground: bool = False) -> bool:
        """Remove an object that still has this uid, with what it owns; False when it was gone.

        Args:
            kind: of the object.
            namespace: of the object.
            name: of the object.
            uid: of the object.
            foreground: it stays until what it owns is gone.
        """
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid},
            "propagationPolicy": "Foreground" if foreground else "Background",
        }
        try:
            await self._request("delete", "DELETE", path_of(kind, namespace, name), body=options)
        except ApiError as error:
            if error.status in (404, 409):  # 409: another object has taken the name
                return False
            raise
        return True

    async def server(self) -> Server:
        """What the API server can do.

        Raises:
            ApiError: it did not say.
        """
        found = await self._request("get", "GET", "/version")
        digits = "".join(letter for letter in str(found.get("minor", "")) if letter.isdigit())  # "28+" on some clouds
        return Server(major=int(found.get("major") or 1), minor=int(digits or 20))

    async def serves_jobs(self) -> bool:
        """Whether the custom resource definition is installed."""
        try:
            found = await self._request("get", "GET", RESOURCES["RLTrainingJob"][0])
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return any(each.get("name") == "rltrainingjobs" for each in found.get("resources") or [])

    async def watch(
        self, kind: str, namespace: str | None, selector: str, version: str, *, name: str = "", keep: Keep = dict
    ) -> AsyncIterator[Mapping[str, Any]]:
        """Changes since a version of a list, as the server sends them, until it ends the stream.

        The other arguments are those of `pages`.

        Raises:
            ApiError: refused; status 410 when the version is too old.
            ValueError: the server sent something else than JSON.
            aiohttp.ClientError, OSError, TimeoutError: the connection broke, or nothing came for over a minute.
        """
        query = selection(selector, name) | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(random.randint(240, 300)),  # noqa: S311 (spread, not secrecy)
        }
        await self._bucket.take()
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=TIMEOUT_S, sock_read=SILENCE_S)
        url, options = await self._prepared(path_of(kind, namespace))
        async with self._session.get(url, params=query, timeout=timeout, **options) as answer:
            self._observe("watch", str(answer.status))
            if answer.status >= 400:
                if answer.status == 401:
                    await self._credentials.current(renew=True)
                raise refusal("watch", url, answer.status, await answer.read())
            rest = b""
            async for chunk in answer.content.iter_any():  # an event may be longer than what readline() takes
                *lines, rest = (rest + chunk).split(b"\n")
                for event in (decoded(line) for line in lines if line.strip()):
                    if event.get("type") in ("ADDED", "MODIFIED", "DELETED"):
                        event["object"] = self._kept(kind, keep, event.get("object"))
                    if event.get("object") is not None:
                        yield event

    async def _prepared(self, path: str, *, renew: bool = False) -> tuple[str, dict[str, Any]]:
        server, headers, tls = await self._credentials.current(renew=renew)
        return server + path, {"headers": {"Accept": "application/json", **headers}, "ssl": tls or True}

    async def _request(
        self, verb: str, method: str, path: str, *, query: Mapping[str, str] | None = None, body: Object | None = None
    ) -> dict[str, Any]:
        """The answer as JSON."""
        content = await self._answer(verb, method, path, query=query, body=body)
        try:
            found: dict[str, Any] = decoded(content) if content else {}
        except ValueError as error:
            raise unreadable(method, path, error) from None
        return found

    async def _answer(
        self,
        verb: str,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
        limit: int | None = None,  # bytes
    ) -> bytes:
        """Send, and send again after what may pass; the last failure is raised.

        Raises:
            ApiError: refused, or not answered.
            TooLongError: the answer is longer than its limit.
        """
        renew = False
        for attempt in range(1, ATTEMPTS + 1):
            await self._bucket.take()
            if method != "GET" and not self._may_write():
                raise ApiError(0, "NotLeading", f"{method} {path}: not sent, as another operator may lead by now")
            try:
                status, headers, content = await self._send(verb, method, path, query, body, renew=renew, limit=limit)
            except NETWORK_ERRORS as error:
                self._observe(verb, "error")
                failure = ApiError(0, "Unreachable", f"{method} {path}: {error or type(error).__name__}")
                renew = isinstance(error, aiohttp.ClientSSLError)  # its certificate authority may be another by now
                retry_after = None
            else:
                self._observe(verb, str(status))
                if status < 400:
                    return content
                failure = refusal(method, path, status, content)
                if status not in TRANSIENT and status != 401:
                    raise failure
                retry_after = seconds(headers.get("Retry-After"))
                renew = status == 401
            if attempt == ATTEMPTS:
                raise failure
            await asyncio.sleep(retry_after if retry_after is not None else self._backoff.delay(attempt))
        raise AssertionError("unreachable")

    async def _send(
        self,
        verb: str,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Object | None,
        *,
        renew: bool,
        limit: int | None,
    ) -> tuple[int, Mapping[str, str], bytes]:
        url, options = await self._prepared(path, renew=renew)
        data = None
        if body is not None:
            kind = "application/merge-patch+json" if verb == "patch" else "application/json"
            options["headers"]["Content-Type"] = kind
            data = json.dumps(body, allow_nan=False, ensure_ascii=False).encode(errors="replace")
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        async with self._session.request(method, url, params=query, data=data, timeout=timeout, **options) as answer:
            content = bytearray()
            async for chunk in answer.content.iter_any():
                content += chunk
                if limit is not None and len(content) > limit:
                    raise TooLongError
            return answer.status, answer.headers, bytes(content)


def selection(selector: str, name: str) -> dict[str, str]:
    """The query for objects with these labels or of this name."""
    given = {"labelSelector": selector, "fieldSelector": f"metadata.name={name}" if name else ""}
    return {key: value for key, value in given.items() if value}


def unreadable(method: str, path: str, error: ValueError) -> ApiError:
    """The error for an answer that is no JSON."""
    return ApiError(0, "Unreadable", f"{method} {path}: the answer is no JSON: {error}")


def seconds(text: str | None) -> float | None:
    """Retry-After in seconds, bounded; None when there is none or it is a date."""
    try:
        return None if text is None else min(max(float(text), 0.0), LONGEST_RETRY_AFTER_S)
    except ValueError:
        return None


def refusal(method: str, path: str, status: int, content: bytes) -> ApiError:
    """The error for an answer: the server's own reason and message where it gave them."""
    try:
        said = json.loads(content)
    except ValueError:
        said = {}
    if not isinstance(said, dict):
        said = {}
    message = said.get("message") or content[:300].decode(errors="replace")
    return ApiError(status, said.get("reason") or "", message or f"HTTP {status}", f"{method} {path}: HTTP {status}")
