"""An API server client for raw JSON: a timeout and a size limit per request, a rate limit, and retries."""

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
    "Ingress": ("/apis/networking.k8s.io/v1", "ingresses"),
    "Job": ("/apis/batch/v1", "jobs"),
    "Deployment": ("/apis/apps/v1", "deployments"),
    "Lease": ("/apis/coordination.k8s.io/v1", "leases"),
    "RLTrainingJob": ("/apis/reef.dev/v1", "rltrainingjobs"),
}
TIMEOUT_S = 30.0
PAGE = 50  # objects
# A longer page is requested again in smaller parts.
PAGE_BYTES = 8 * 2**20
ATTEMPTS = 4
LONGEST_RETRY_AFTER_S = 30.0
# The API server sends a bookmark once a minute.
SILENCE_S = 70.0
TRANSIENT = {429, 500, 502, 503, 504}
NETWORK_ERRORS = (aiohttp.ClientError, OSError, asyncio.TimeoutError)

# Returns the part of an object that is kept.
Keep = Callable[[Mapping[str, Any]], Object]

logger = logging.getLogger(__name__)


class ApiError(Exception):
    """The API server refused a request, or was not reached (status 0)."""

    explained = True

    def __init__(self, status: int, reason: str, message: str, request: str = "") -> None:
        super().__init__(f"{request}: {message}" if request else message)
        self.status = status
        self.reason = reason
        self.message = message  # from the server


class TooLongError(Exception):
    """An answer is longer than its size limit."""


@dataclass(frozen=True)
class Page:
    """A part of a list; `version` is the resource version of the whole list."""

    items: list[Object]
    version: str


def path_of(kind: str, namespace: str | None, name: str = "", subresource: str = "") -> str:
    """Path of a kind in a namespace (None: all namespaces), of one object, or of its subresource."""
    root, plural = RESOURCES[kind]
    parts = [root, *(["namespaces", namespace] if namespace else []), plural, name, subresource]
    return "/".join(part for part in parts if part)


class Client:
    """Sends requests to the API server; used as an asynchronous context manager.

    Args:
        credentials: server address and identity.
        rate: requests per second, on average.
        burst: requests allowed at once after a pause.
        observe: called with verb and HTTP code of every answer ("error" without an answer).
        skipped: called with the kind of every object that cannot be read and is skipped.
        may_write: called before every write and before each of its retries; False stops the write.
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
        """Return one object, or None when it does not exist."""
        try:
            return await self._request("get", "GET", path_of(kind, namespace, name))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def listed(self, kind: str, namespace: str, name: str) -> Object | None:
        """Return one object as `get` does, but with the permissions of a watch (list)."""
        found = [item async for page in self.pages(kind, namespace, name=name) for item in page.items]
        return found[0] if found else None

    async def pages(
        self, kind: str, namespace: str | None, selector: str = "", *, name: str = "", keep: Keep = dict
    ) -> AsyncIterator[Page]:
        """Yield a list page by page, so that a long list is never held as a whole.

        Args:
            kind: kind of the objects.
            namespace: namespace of the objects; None for all namespaces.
            selector: label selector.
            name: name of a single object to list.
            keep: returns the part of each object that is kept.
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
        """Return the kept part of an object, or None for an unreadable one, so that it does not block the others."""
        try:
            return keep(found)
        except Exception:
            self._skipped(kind)
            logger.exception("skipped an unreadable %s", kind)
            return None

    async def list(self, kind: str, namespace: str | None, selector: str = "") -> list[Object]:
        """Return all objects that match the label selector."""
        return [item async for page in self.pages(kind, namespace, selector) for item in page.items]

    async def create(self, kind: str, namespace: str, body: Object) -> Object | None:
        """Create an object; return None when an object of this name exists already."""
        try:
            return await self._request("create", "POST", path_of(kind, namespace), body=body)
        except ApiError as error:
            # Another 409 means that a quota changed at the same time.
            if error.reason == "AlreadyExists":
                return None
            raise

    async def patch(self, kind: str, namespace: str, name: str, body: Object, *, subresource: str = "") -> Object:
        """Change fields of an object or of its subresource (JSON merge patch: null removes a field)."""
        return await self._request("patch", "PATCH", path_of(kind, namespace, name, subresource), body=body)

    async def delete(self, kind: str, namespace: str, name: str, uid: str, *, foreground: bool = False) -> bool:
        """Delete an object if it still has this uid, and the objects it owns; False when it did not exist any more.

        Args:
            kind: kind of the object.
            namespace: namespace of the object.
            name: name of the object.
            uid: uid of the object.
            foreground: the object stays until the objects it owns are deleted.
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
            if error.status in (404, 409):  # 409: another object has this name now
                return False
            raise
        return True

    async def server(self) -> Server:
        """Return the capabilities of the API server.

        Raises:
            ApiError: the request failed.
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
        """Yield changes since a resource version as the server sends them, until the server ends the stream.

        The other arguments are those of `pages`.

        Raises:
            ApiError: the request was refused; status 410 means that the version is too old.
            ValueError: the server sent invalid JSON.
            aiohttp.ClientError, OSError, TimeoutError: the connection broke, or was silent for more than a minute.
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
            # An event may be longer than the limit of readline().
            async for chunk in answer.content.iter_any():
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
        """Send a request and return the answer as JSON."""
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
        """Send a request, retry it after a temporary failure, and raise the last failure.

        Raises:
            ApiError: the request was refused or got no answer.
            TooLongError: the answer is longer than its size limit.
        """
        renew = False
        for attempt in range(1, ATTEMPTS + 1):
            await self._bucket.take()
            if method != "GET" and not self._may_write():
                raise ApiError(
                    0, "NotLeading", f"{method} {path}: not sent, because another operator may be the leader now"
                )
            try:
                status, headers, content = await self._send(verb, method, path, query, body, renew=renew, limit=limit)
            except NETWORK_ERRORS as error:
                self._observe(verb, "error")
                failure = ApiError(0, "Unreachable", f"{method} {path}: {error or type(error).__name__}")
                # The certificate authority may have changed.
                renew = isinstance(error, aiohttp.ClientSSLError)
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
    """Return the query for objects with these labels or with this name."""
    given = {"labelSelector": selector, "fieldSelector": f"metadata.name={name}" if name else ""}
    return {key: value for key, value in given.items() if value}


def unreadable(method: str, path: str, error: ValueError) -> ApiError:
    """Return the error for an answer that is not valid JSON."""
    return ApiError(0, "Unreadable", f"{method} {path}: the answer is not valid JSON: {error}")


def seconds(text: str | None) -> float | None:
    """Return Retry-After in seconds, bounded; None when it is missing or is a date."""
    try:
        return None if text is None else min(max(float(text), 0.0), LONGEST_RETRY_AFTER_S)
    except ValueError:
        return None


def refusal(method: str, path: str, status: int, content: bytes) -> ApiError:
    """Return the error for a refused request, with the server's reason and message if it sent them."""
    try:
        said = json.loads(content)
    except ValueError:
        said = {}
    if not isinstance(said, dict):
        said = {}
    message = said.get("message") or content[:300].decode(errors="replace")
    return ApiError(status, said.get("reason") or "", message or f"HTTP {status}", f"{method} {path}: HTTP {status}")
