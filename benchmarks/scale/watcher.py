"""What the API server says of jobs and their objects, with the moment at which a watch delivered it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Collection
from typing import Any

from kube.api import Api, ApiError

from benchmarks.scale.lags import Change

JOB_LABEL, COMPONENT_LABEL = "reef.dev/job", "reef.dev/component"
KINDS = {
    "RLTrainingJob": "/apis/reef.dev/v1/namespaces/{}/rltrainingjobs",
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "Secret": "/api/v1/namespaces/{}/secrets",
    "Service": "/api/v1/namespaces/{}/services",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "Pod": "/api/v1/namespaces/{}/pods",
}
CHILDREN = ("ConfigMap", "Secret", "Service", "NetworkPolicy", "Job", "Deployment")
STREAM_S = 40


class Watcher:
    """Follows all objects of jobs in one namespace; used as a context.

    Args:
        api: of the cluster.
        namespace: to look at.
    """

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._changes: list[Change] = []
        self._now: dict[tuple[str, str], Change] = {}
        self._threads = [threading.Thread(target=self._follow, args=(kind,), daemon=True) for kind in KINDS]

    def __enter__(self) -> Watcher:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def take(self) -> list[Change]:
        """All changes since the last call, in their order."""
        with self._lock:
            taken, self._changes = self._changes, []
        return taken

    def present(self, kind: str, jobs: Collection[str] | None = None) -> list[Change]:
        """The objects of a kind that are there now, of some jobs or of all."""
        with self._lock:
            now = [change for (each, _), change in self._now.items() if each == kind]
        return [change for change in now if jobs is None or change.job in jobs]

    def count(self) -> Counter[str]:
        """How many objects there are, by kind."""
        with self._lock:
            return Counter(kind for kind, _ in self._now)

    def _follow(self, kind: str) -> None:
        path, version = KINDS[kind].format(self._namespace), ""
        while not self._ended.is_set():
            with contextlib.suppress(OSError, ApiError):
                if not version:
                    version = self._list(kind, path)
                query = f"watch=1&allowWatchBookmarks=true&timeoutSeconds={STREAM_S}&resourceVersion={version}"
                version = ""  # whatever ends the stream early: list again
                for event in self._api.stream(f"{path}?{query}"):
                    if event["type"] == "ERROR":
                        version = ""
                        break
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        self._record(kind, event["object"], gone=event["type"] == "DELETED")
            self._ended.wait(0.05)

    def _list(self, kind: str, path: str) -> str:
        """Take what is there; what went unseen is gone."""
        listed = self._api.request("GET", path, timeout_s=60)
        there = {item["metadata"]["name"] for item in listed["items"]}
        for change in self.present(kind):
            if change.name not in there:
                with self._lock:
                    del self._now[kind, change.name]
        for item in listed["items"]:
            known = self._now.get((kind, item["metadata"]["name"]))
            if known is None or known.uid != item["metadata"]["uid"]:
                self._record(kind, item, gone=False)
        return str(listed["metadata"]["resourceVersion"])

    def _record(self, kind: str, found: dict[str, Any], *, gone: bool) -> None:
        metadata = found["metadata"]
        job = metadata["name"] if kind == "RLTrainingJob" else (metadata.get("labels") or {}).get(JOB_LABEL)
        if not job:
            return  # the namespace's own, such as the token of its default service account
        change = Change(
            time=time.monotonic(),
            clock=time.time(),
            kind=kind,
            name=metadata["name"],
            uid=metadata["uid"],
            job=job,
            gone=gone,
            facts=facts(kind, found),
        )
        with self._lock:
            self._changes.append(change)
            if gone:
                self._now.pop((kind, change.name), None)
            else:
                self._now[kind, change.name] = change


def facts(kind: str, found: dict[str, Any]) -> dict[str, Any]:
    """What is measured of an object's status."""
    status = found.get("status") or {}
    if kind == "Pod":
        going = "deletionTimestamp" in found["metadata"]
        ready = any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions") or [])
        return {
            "component": found["metadata"]["labels"][COMPONENT_LABEL],
            "phase": status.get("phase"),
            "ready": ready and not going and status.get("phase") == "Running",
        }
    if kind == "RLTrainingJob":
        return {
            "phase": status.get("phase"),
            "generation": status.get("observedGeneration", 0),
            "head": (status.get("head") or {}).get("uid"),
            "ready": (status.get("workers") or {}).get("ready", 0),
            "iteration": (status.get("training") or {}).get("iteration", 0),
        }
    return {}
