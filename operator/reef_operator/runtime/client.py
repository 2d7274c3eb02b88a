"""The API server as raw JSON: limits on every call, a token bucket, retries; no models."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import aiohttp

from reef_operator.model import Object, Server
from reef_operator.runtime.credentials import Credentials
from reef_operator.runtime.limits import Backoff, TokenBucket

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
PAGE = 50  # the memory that a list needs at its peak: 250 jobs parsed at once cost 4 MB for good
ATTEMPTS = 4
LONGEST_RETRY_AFTER_S = 30.0
SILENCE_S = 70.0  # bookmarks come once a minute
TRANSIENT = {429, 500, 502, 503, 504}
NETWORK_ERRORS = (aiohttp.ClientError, OSError, asyncio.TimeoutError)


class ApiError(Exception):
    """The API server refused a request, or could not be reached (status 0)."""

    explained = True

    def __init__(self, status: int, reason: str, message: str, request: str = "") -> None:
        super().__init__(f"{request}: {message}" if request else message)
        self.status = status
        self.reason = reason
        self.message = message  # the server's own words


@dataclass(frozen=True)
class Page:
    """A part of a list; `version` is that of the whole list."""

    items: list[dict[str, Any]]
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
        may_write: asked before everything that would change the cluster, and again before each repetition of it.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        rate: float = 100.0,
        burst: int = 200,
        observe: Callable[[str, str], None] = lambda verb, code: None,
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        self._credentials = credentials
        self._bucket = TokenBucket(rate, burst)
        self._observe = observe
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
        query = {"fieldSelector": f"metadata.name={name}"}
        found = await self._request("list", "GET", path_of(kind, namespace), query=query)
        return next(iter(found.get("items") or []), None)

    async def pages(self, kind: str, namespace: str | None, selector: str = "") -> AsyncIterator[Page]:
        """A list in parts, so that a big one is never held as a whole; all namespaces when None."""
        query = {"limit": str(PAGE)} | ({"labelSelector": selector} if selector else {})
        while True:
            found = await self._request("list", "GET", path_of(kind, namespace), query=query)
            metadata = found.get("metadata") or {}
            yield Page(found.get("items") or [], metadata.get("resourceVersion", ""))
            if not metadata.get("continue"):
                return
            query["continue"] = metadata["continue"]

    async def list(self, kind: str, namespace: str | None, selector: str = "") -> list[Object]:
        """All objects that the label selector matches."""
        return [item async for page in self.pages(kind, namespace, selector) for item in page.items]

    async def create(self, kind: str, namespace: str, body: Object) -> Object | None:
        """Make an object; None when one of this name is there already."""
        try:
            return await self._request("create", "POST", path_of(kind, namespace), body=body)
        except ApiError as error:
            if error.status == 409:
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
        self, kind: str, namespace: str | None, selector: str, version: str
    ) -> AsyncIterator[Mapping[str, Any]]:
        """Changes since a version of a list, as the server sends them, until it ends the stream.

        Raises:
            ApiError: refused; status 410 when the version is too old.
            aiohttp.ClientError, OSError, TimeoutError: the connection broke, or nothing came for over a minute.
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "labelSelector": selector,
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
                for line in lines:
                    if line.strip():
                        yield json.loads(line)

    async def _prepared(self, path: str, *, renew: bool = False) -> tuple[str, dict[str, Any]]:
        server, headers, tls = await self._credentials.current(renew=renew)
        return server + path, {"headers": {"Accept": "application/json", **headers}, "ssl": tls or True}

    async def _request(
        self, verb: str, method: str, path: str, *, query: Mapping[str, str] | None = None, body: Object | None = None
    ) -> dict[str, Any]:
        """Send, and send again after what may pass; the last failure is raised."""
        renew = False
        for attempt in range(1, ATTEMPTS + 1):
            await self._bucket.take()
            if method != "GET" and not self._may_write():
                raise ApiError(0, "NotLeading", f"{method} {path}: not sent, as another operator may lead by now")
            try:
                status, headers, content = await self._send(verb, method, path, query, body, renew=renew)
            except NETWORK_ERRORS as error:
                self._observe(verb, "error")
                failure = ApiError(0, "Unreachable", f"{method} {path}: {error or type(error).__name__}")
                retry_after = None
            else:
                self._observe(verb, str(status))
                if status < 400:
                    found: dict[str, Any] = json.loads(content) if content else {}
                    return found
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
        self, verb: str, method: str, path: str, query: Mapping[str, str] | None, body: Object | None, *, renew: bool
    ) -> tuple[int, Mapping[str, str], bytes]:
        url, options = await self._prepared(path, renew=renew)
        data = None
        if body is not None:
            kind = "application/merge-patch+json" if verb == "patch" else "application/json"
            options["headers"]["Content-Type"] = kind
            data = json.dumps(body, allow_nan=False).encode()
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        async with self._session.request(method, url, params=query, data=data, timeout=timeout, **options) as answer:
            return answer.status, answer.headers, await answer.read()


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
