"""Nodes without kubelets, for tests of scale: they hold any number of pods, which "run" without a container."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, ClassVar

from kube.api import Api, ApiError

GPU = "nvidia.com/gpu"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
RENEW_S = 3.0  # the controllers give a node up after ten seconds
WRITERS = 16


def now() -> str:
    """The time as Kubernetes writes it, with microseconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class HollowNodes:
    """A number of nodes, and a thread that plays their kubelets.

    Pods bound to them are reported Running at once, and deleted pods vanish. Nodes that the cluster took for lost, as
    this machine was busy, are Ready again with their pods, as a kubelet would have it. They carry the taint
    `reef/hollow` (NoSchedule), so that only pods come that tolerate it; give these the node selector
    `reef/hollow: "true"`.

    Args:
        api: of the cluster.
        count: of nodes.
        gpus: that each of them claims.
    """

    SELECTOR: ClassVar = {"reef/hollow": "true"}
    TOLERATION: ClassVar = {"key": "reef/hollow", "operator": "Exists"}

    def __init__(self, api: Api, count: int, *, gpus: int = 0) -> None:
        self._api = api
        self._gpus = gpus
        self.names = [f"hollow-{number}" for number in range(count)]
        self._ended = threading.Event()
        self._writers = ThreadPoolExecutor(WRITERS, "hollow")
        self._threads = [threading.Thread(target=play, daemon=True) for play in (self._renew, self._watch)]
        self._addresses = itertools.count(1)

    def start(self) -> None:
        """Make the nodes; they are Ready when this returns."""
        list(self._writers.map(self._make, self.names))
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Remove the nodes; pods that are still there are left to the cluster's garbage collection."""
        self._ended.set()
        for thread in self._threads:
            thread.join(timeout=30)
        list(self._writers.map(self._remove, self.names))
        self._writers.shutdown()

    def finish(self, namespace: str, pod: str, *, exit_code: int = 0) -> None:
        """Let all containers of a pod end: the pod is Succeeded, or Failed if the code is not 0."""
        found = self._api.request("GET", f"/api/v1/namespaces/{namespace}/pods/{pod}")
        ended = {"exitCode": exit_code, "finishedAt": now()[:19] + "Z", "reason": "Error" if exit_code else "Completed"}
        statuses = [container_status(each, {"terminated": ended}) for each in found["spec"]["containers"]]
        phase = "Failed" if exit_code else "Succeeded"
        self._patch_status(found, {"phase": phase, "containerStatuses": statuses, "conditions": conditions(False)})

    def _make(self, name: str) -> None:
        self._remove(name)
        size = {"cpu": "1000", "memory": "4Ti", "pods": "5000", "ephemeral-storage": "10Ti"}
        if self._gpus:
            size[GPU] = str(self._gpus)
        taint = {"key": "reef/hollow", "value": "true", "effect": "NoSchedule"}
        labels = self.SELECTOR | {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
        status = {"capacity": size, "allocatable": size, "conditions": conditions(True)}
        node = {"metadata": {"name": name, "labels": labels}, "spec": {"taints": [taint]}, "status": status}
        self._api.request("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node"} | node)
        lease = {"holderIdentity": name, "leaseDurationSeconds": 10, "renewTime": now()}
        self._api.request("POST", LEASES, {"metadata": {"name": name}, "spec": lease})

    def _remove(self, name: str) -> None:
        for path in (f"/api/v1/nodes/{name}", f"{LEASES}/{name}"):
            with contextlib.suppress(ApiError):
                self._api.request("DELETE", path)

    def _renew(self) -> None:
        while not self._ended.wait(RENEW_S):
            for name in self.names:
                with contextlib.suppress(OSError, ApiError):  # the API server may be away; that is a test of its own
                    self._api.request("PATCH", f"{LEASES}/{name}", {"spec": {"renewTime": now()}}, kind="merge")
                    status = {"status": {"conditions": conditions(True)}}
                    self._api.request("PATCH", f"/api/v1/nodes/{name}/status", status, kind="strategic")

    def _watch(self) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(OSError, ApiError):
                for pod in self._changes():
                    if self._ended.is_set():
                        return
                    if pod["spec"].get("nodeName", "") in self.names:
                        self._writers.submit(self._play, pod)
            self._ended.wait(0.2)

    def _changes(self) -> Iterator[dict[str, Any]]:
        """All pods, then every one that changes, for some seconds."""
        listed = self._api.request("GET", "/api/v1/pods", timeout_s=60)
        yield from listed["items"]
        version = listed["metadata"]["resourceVersion"]
        query = f"watch=1&timeoutSeconds=20&resourceVersion={version}"
        for event in self._api.stream(f"/api/v1/pods?{query}"):
            if event["type"] in ("ADDED", "MODIFIED"):
                yield event["object"]
            elif event["type"] == "ERROR":
                return

    def _play(self, pod: dict[str, Any]) -> None:
        with contextlib.suppress(OSError, ApiError):  # gone or changed meanwhile: the next event says so
            if pod["metadata"].get("deletionTimestamp"):
                path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
                self._api.request("DELETE", path, {"gracePeriodSeconds": 0})
            elif pod["status"].get("phase") == "Pending":
                number = next(self._addresses)
                address = f"198.{18 + number // 65536 % 2}.{number // 256 % 256}.{number % 256}"
                running = {"running": {"startedAt": now()[:19] + "Z"}}
                statuses = [container_status(each, running) for each in pod["spec"]["containers"]]
                status = {
                    "phase": "Running",
                    "podIP": address,
                    "podIPs": [{"ip": address}],
                    "startTime": now()[:19] + "Z",
                }
                self._patch_status(pod, status | {"containerStatuses": statuses, "conditions": conditions(True)})
            elif pod["status"].get("phase") == "Running" and not is_ready(pod):
                self._patch_status(pod, {"conditions": conditions(True)})

    def _patch_status(self, pod: dict[str, Any], status: dict[str, Any]) -> None:
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}/status"
        self._api.request(
            "PATCH", path, {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}, kind="strategic"
        )


def conditions(holds: bool) -> list[dict[str, str]]:
    """Readiness as nodes and pods tell it."""
    status = "True" if holds else "False"
    return [{"type": kind, "status": status, "reason": "Hollow"} for kind in ("Ready", "ContainersReady")]


def is_ready(pod: dict[str, Any]) -> bool:
    """Whether a pod is told to be ready."""
    return any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions") or [])


def container_status(container: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    """What a kubelet would tell about a container."""
    image = {"image": container["image"], "imageID": container["image"], "containerID": "hollow://0"}
    return {"name": container["name"], "state": state, "ready": "running" in state, "restartCount": 0} | image
