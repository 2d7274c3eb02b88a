"""An API server of a few lines, for the operator as a process: it keeps objects in memory, lists, watches and patches.

It runs in a thread of its own. Nothing but the operator acts on what is written: no controller makes pods.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

GROUPS = {
    "reef.dev": [("rltrainingjobs", "RLTrainingJob")],
    "batch": [("jobs", "Job")],
    "apps": [("deployments", "Deployment")],
    "coordination.k8s.io": [("leases", "Lease")],
    "networking.k8s.io": [("networkpolicies", "NetworkPolicy")],
    "apiextensions.k8s.io": [("customresourcedefinitions", "CustomResourceDefinition")],
}
COLLECTION = re.compile(r"(?P<root>/api/v1|/apis/[^/]+/v1)(/namespaces/(?P<ns>[^/]+))?/(?P<plural>[a-z]+)")
MERGE_PATCH = "application/merge-patch+json"
LIMIT_S = 30.0


@dataclass
class Stored:
    """An object; `spec` may be JSON text that Python's own encoder would refuse."""

    fields: dict[str, Any]
    spec: str | None = None

    def text(self) -> str:
        fields = json.dumps(self.fields)
        return fields if self.spec is None else f'{fields[:-1]}, "spec": {self.spec}}}'


@dataclass(frozen=True)
class Asked:
    """A request, and when it came (monotonic)."""

    time: float
    method: str
    path: str
    body: Any = None


@dataclass
class ApiServer:
    """Objects by path, and every request."""

    asked: list[Asked] = field(default_factory=list)
    port: int = 0
    _objects: dict[str, Stored] = field(default_factory=dict)
    _versions: Iterator[int] = field(default_factory=lambda: itertools.count(1000))
    _version: int = 999
    _streams: dict[asyncio.Queue[str], tuple[web.Request, str]] = field(default_factory=dict)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)

    def put(self, path: str, fields: dict[str, Any], spec: str | None = None) -> None:
        """Create an object, or replace all of it, from any thread, or before serving."""
        keeping = self._keep(path, Stored(fields, spec))
        if self._loop.is_running():
            asyncio.run_coroutine_threadsafe(keeping, self._loop).result(LIMIT_S)
        else:
            self._loop.run_until_complete(keeping)

    def get(self, path: str) -> dict[str, Any]:
        """An object without a spec that was given as text; empty when there is none."""
        stored = self._objects.get(path)
        return stored.fields if stored else {}

    def writes(self, *words: str) -> list[Asked]:
        """What was written to paths that hold all of these words."""
        return [each for each in self.asked if each.method != "GET" and all(word in each.path for word in words)]

    @contextlib.contextmanager
    def serving(self, folder: Path) -> Iterator[Path]:
        """Serve; yield a kubeconfig."""
        started = threading.Event()
        thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        thread.start()
        assert started.wait(LIMIT_S)
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path = folder / "kubeconfig"
        path.write_text(yaml.safe_dump(config))
        try:
            yield path
        finally:
            self._loop.call_soon_threadsafe(self._end)
            thread.join(LIMIT_S)

    def _run(self, started: threading.Event) -> None:
        application = web.Application(client_max_size=10**8)
        application.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        self._loop.run_until_complete(runner.setup())
        self._loop.run_until_complete(web.TCPSite(runner, "127.0.0.1", 0).start())
        self.port = runner.addresses[0][1]
        started.set()
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())
        self._loop.close()

    def _end(self) -> None:
        for queue in self._streams:
            queue.put_nowait("")
        self._loop.stop()

    async def _keep(self, path: str, stored: Stored) -> None:
        metadata = stored.fields.setdefault("metadata", {})
        before = self._objects.get(path)
        self._version = next(self._versions)
        metadata["resourceVersion"] = str(self._version)
        metadata.setdefault("uid", before.fields["metadata"]["uid"] if before else f"uid-{self._version}")
        metadata.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
        self._objects[path] = stored
        self._tell(path, "MODIFIED" if before else "ADDED", stored)

    def _tell(self, path: str, kind: str, stored: Stored) -> None:
        for queue, (request, collection) in self._streams.items():
            if in_collection(path, collection) and is_selected(stored.fields, request):
                queue.put_nowait(f'{{"type": "{kind}", "object": {stored.text()}}}\n')

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.text() or "null")
        self.asked.append(Asked(time.monotonic(), request.method, request.path, body))
        if (known := discovery(request.path)) is not None:
            return web.json_response(known)
        stored = self._objects.get(request.path.removesuffix("/status"))
        match request.method:
            case "GET" if COLLECTION.fullmatch(request.path):
                return await (self._watch(request) if "watch" in request.query else self._list(request))
            case "GET" if stored:
                return json_text(stored.text())
            case "POST":
                path = f"{request.path}/{body['metadata']['name']}"
                if path in self._objects:
                    return web.json_response({"reason": "AlreadyExists"}, status=409)
                await self._keep(path, Stored(body))
                return json_text(self._objects[path].text())
            case "PATCH" if stored:
                wanted = (body.get("metadata") or {}).get("resourceVersion")
                if wanted not in (None, stored.fields["metadata"]["resourceVersion"]):
                    return web.json_response({"reason": "Conflict"}, status=409)
                fields = merged(stored.fields, body)
                await self._keep(request.path.removesuffix("/status"), Stored(fields, stored.spec))
                return json_text(self._objects[request.path.removesuffix("/status")].text())
            case "DELETE" if stored:
                del self._objects[request.path]
                self._version = next(self._versions)
                stored.fields["metadata"]["resourceVersion"] = str(self._version)
                self._tell(request.path, "DELETED", stored)
                return web.json_response({})
        return web.json_response({"reason": "NotFound", "message": "there is none"}, status=404)

    async def _list(self, request: web.Request) -> web.Response:
        start, limit = int(request.query.get("continue") or 0), int(request.query.get("limit") or 10**9)
        found = [
            stored
            for path, stored in self._objects.items()
            if in_collection(path, request.path) and is_selected(stored.fields, request)
        ]
        more = {"continue": str(start + limit)} if start + limit < len(found) else {}
        metadata = json.dumps({"resourceVersion": str(self._version), **more})
        items = ", ".join(stored.text() for stored in found[start : start + limit])
        return json_text(f'{{"kind": "List", "items": [{items}], "metadata": {metadata}}}')

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        queue = asyncio.Queue[str]()
        since = int(request.query["resourceVersion"])
        for path, stored in list(self._objects.items()):  # what changed between the list and now
            changed = int(stored.fields["metadata"]["resourceVersion"]) > since
            if changed and in_collection(path, request.path) and is_selected(stored.fields, request):
                queue.put_nowait(f'{{"type": "MODIFIED", "object": {stored.text()}}}\n')
        self._streams[queue] = (request, request.path)
        try:
            while event := await queue.get():
                await response.write(event.encode())
        except ConnectionError:
            pass
        finally:
            del self._streams[queue]
        return response


def json_text(text: str) -> web.Response:
    return web.Response(text=text, content_type="application/json")


def in_collection(path: str, collection: str) -> bool:
    """Whether an object's path lies in a collection, that of all namespaces included."""
    wanted, own = COLLECTION.fullmatch(collection), COLLECTION.fullmatch(path.rpartition("/")[0])
    assert wanted is not None
    same = own is not None and (own["root"], own["plural"]) == (wanted["root"], wanted["plural"])
    return same and own is not None and wanted["ns"] in (None, own["ns"])


def is_selected(fields: dict[str, Any], request: web.Request) -> bool:
    """Whether the selectors of a list or watch take an object."""
    labels = fields["metadata"].get("labels") or {}
    for part in filter(None, request.query.get("labelSelector", "").split(",")):
        key, equals, value = part.partition("=")
        if key not in labels or (equals and labels[key] != value):
            return False
    name = request.query.get("fieldSelector", "").removeprefix("metadata.name=")
    return name in ("", fields["metadata"]["name"])


def merged(before: Any, patch: Any) -> Any:
    """A JSON merge patch, done."""
    if not isinstance(patch, dict):
        return patch
    after = dict(before) if isinstance(before, dict) else {}
    for key, value in patch.items():
        if value is None:
            after.pop(key, None)
        else:
            after[key] = merged(after.get(key), value)
    return after


def discovery(path: str) -> dict[str, Any] | None:
    """What the server says of itself."""
    if path == "/version":
        return {"major": "1", "minor": "30"}
    if path == "/api":
        return {"versions": ["v1"]}
    if path == "/apis":
        versions = {group: {"groupVersion": f"{group}/v1", "version": "v1"} for group in GROUPS}
        return {"groups": [{"name": g, "versions": [v], "preferredVersion": v} for g, v in versions.items()]}
    if path == "/api/v1":
        return {"resources": [resource("namespaces", "Namespace"), resource("pods", "Pod")]}
    found = re.fullmatch(r"/apis/([^/]+)/v1", path)
    return {"resources": [resource(*each) for each in GROUPS[found[1]]]} if found and found[1] in GROUPS else None


def resource(plural: str, kind: str) -> dict[str, Any]:
    verbs = ["create", "delete", "get", "list", "patch", "watch"]
    return {"name": plural, "singularName": "", "namespaced": True, "kind": kind, "verbs": verbs}
