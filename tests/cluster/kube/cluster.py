"""The cluster that a test sees: one of our own, or the one that $KUBECONFIG names."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from kube.api import Api
from kube.binaries import VERSION, check_machine, find_binaries
from kube.control_plane import ControlPlane
from kube.crd_server import find_crd_server
from kube.hollow import HollowNodes
from kube.images import ImageStore
from kube.machine import Machine
from kube.node import Node
from kube.pki import NODE
from kube.progress import ClusterError, cache_folder, locked, run, say, stage, wait_until

GPU = "nvidia.com/gpu"
PLACES = {
    "deployment": "/apis/apps/v1",
    "rltrainingjob": "/apis/reef.dev/v1",
}  # of kinds that are waited for; else core
Manifest = str | Path | dict[str, Any] | Sequence[dict[str, Any]]


class Cluster:
    """A Kubernetes that can be used: commands, waiting, images.

    Args:
        kubeconfig: how to reach it.
        kubectl: the program.
    """

    def __init__(self, kubeconfig: Path, kubectl: str | Path) -> None:
        self.kubeconfig = kubeconfig
        self.program = kubectl
        self.api = Api(kubeconfig)

    @property
    def crd_version(self) -> str:
        """Release of the Kubernetes that serves custom resources, as in 1.36.4."""
        return str(self.api.request("GET", "/version")["gitVersion"]).removeprefix("v")

    @property
    def checks_rules(self) -> bool:
        """Whether the CEL rules of definitions are checked: from 1.25 on."""
        major, minor = re.findall(r"\d+", self.crd_version)[:2]
        return (int(major), int(minor)) >= (1, 25)

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout_s: float = 60) -> str:
        """Run kubectl and return what it printed.

        Raises:
            ClusterError: it failed; with what it printed.
        """
        return run([self.program, "--kubeconfig", self.kubeconfig, *arguments], stdin=stdin, timeout_s=timeout_s)

    def apply(self, manifest: Manifest, *, namespace: str = "default") -> None:
        """Apply YAML text, a file, an object or several; fields that this server does not know are dropped."""
        text = manifest.read_text() if isinstance(manifest, Path) else manifest
        if not isinstance(text, str):
            text = yaml.safe_dump_all([text] if isinstance(text, dict) else text)
        self.kubectl("apply", "--validate=false", "-n", namespace, "-f", "-", stdin=text)

    def get(self, kind: str, name: str = "", *, namespace: str = "default", selector: str = "") -> dict[str, Any]:
        """An object, or without a name the list of all that the selector matches.

        Raises:
            ClusterError: there is none of this name.
        """
        words = ["get", kind, *([name] if name else []), *(["-l", selector] if selector else [])]
        found: dict[str, Any] = json.loads(self.kubectl(*words, "-n", namespace, "-o", "json"))
        return found

    def wait_for(
        self,
        kind: str,
        name: str,
        holds: Callable[[dict[str, Any]], bool],
        *,
        namespace: str = "default",
        timeout_s: float = 60,
    ) -> dict[str, Any]:
        """Wait until something holds for an object, and return the object.

        Raises:
            ClusterError: it did not within the limit; with the object's status and its last events.
        """
        last: dict[str, Any] = {}
        path = f"{PLACES.get(kind, '/api/v1')}/namespaces/{namespace}/{kind}s/{name}"

        def now() -> bool:
            nonlocal last
            last = self.api.request("GET", path)  # a kubectl for every look would take a good part of a CPU
            return holds(last)

        try:
            wait_until(f"{kind}/{name} in {namespace}", now, timeout_s=timeout_s, poll_s=0.2)
        except ClusterError as late:
            status = json.dumps(last.get("status"), indent=1)[:3000]
            raise ClusterError(f"{late}\nstatus: {status}\nevents:\n{self._events(name, namespace)}") from None
        return last

    def _events(self, name: str, namespace: str) -> str:
        return self._shown_events(namespace, f"involvedObject.name={name}")

    def warnings(self, namespace: str) -> str:
        """The last events of a namespace that are no good news."""
        return self._shown_events(namespace, "type=Warning")

    def _shown_events(self, namespace: str, selector: str) -> str:
        with contextlib.suppress(ClusterError):
            return self.kubectl("get", "events", "-n", namespace, "--field-selector", selector)[-3000:]
        return "(unknown)"

    def wait_for_phase(self, pod: str, phase: str, *, namespace: str = "default", timeout_s: float = 60) -> None:
        """Wait until a pod is Running, Succeeded or Failed."""
        self.wait_for(
            "pod", pod, lambda found: found["status"]["phase"] == phase, namespace=namespace, timeout_s=timeout_s
        )

    @contextlib.contextmanager
    def namespace(self, prefix: str = "test") -> Iterator[str]:
        """A namespace of one test's own, with its default service account; removed afterwards without waiting."""
        name = f"{prefix}-{uuid.uuid4().hex[:8]}"
        self.kubectl("create", "namespace", name)
        self.wait_for("serviceaccount", "default", lambda _: True, namespace=name)
        try:
            yield name
        finally:
            with contextlib.suppress(ClusterError):
                self.kubectl("delete", "namespace", name, "--wait=false")
                self.kubectl("delete", "pods", "--all", "-n", name, "--grace-period=1", "--wait=false")

    def set_gpus(self, count: int, node: str = NODE) -> None:
        """Let a node claim GPUs: the scheduler counts them as if they were there."""
        size = {GPU: str(count)}
        self.api.request(
            "PATCH", f"/api/v1/nodes/{node}/status", {"status": {"capacity": size, "allocatable": size}}, kind="merge"
        )

    @contextlib.contextmanager
    def hollow_nodes(self, count: int, *, gpus: int = 0) -> Iterator[HollowNodes]:
        """Nodes without kubelets for tests of scale: pods on them "run" and "end" without any container."""
        nodes = HollowNodes(self.api, count, gpus=gpus)
        nodes.start()
        try:
            yield nodes
        finally:
            nodes.stop()

    def image(self, target: str) -> str:
        """Reference of the image of a target of the Dockerfile, for a cluster whose images come from elsewhere.

        Raises:
            ClusterError: no variable names it.
        """
        variable = f"REEF_{target.upper()}_IMAGE"
        if variable not in os.environ:
            raise ClusterError(f"this cluster was given by KUBECONFIG: name the image for {target!r} in ${variable}")
        return os.environ[variable]


class OwnCluster(Cluster):
    """A single-node cluster on this machine, whose parts can be stopped and started; see `machine`.

    Args:
        machine: a running one.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._binaries = find_binaries()
        self._store = ImageStore()
        self._images: dict[str, str] = {}  # by target, "" for the base: those that the node has
        self._control_plane = ControlPlane(machine, self._binaries)
        self._node = Node(machine, self._binaries, cache_folder() / "containerd" / machine.name)
        super().__init__(machine.state / "pki" / "admin.kubeconfig", self._binaries.kubectl)

    @classmethod
    def start(cls, name: str) -> OwnCluster:
        """Start a cluster of this name; the one that runs already if there is one."""
        machine = machine_of(name)
        if (machine.state / "ready").exists() and machine.running:
            return cls(machine)
        machine.halt()  # what a run left that was killed
        binaries, store, crd_server = find_binaries(), ImageStore(), chosen_crd_server()
        store.pause()
        try:
            with stage(f"Starting the cluster {name!r}"):
                machine.boot()
                ControlPlane(machine, binaries).start(crd_server)
                if crd_server:
                    (machine.state / "crd-version").write_text(crd_server.parent.name)
                cluster = cls(machine)
                cluster._node.start(store)
                cluster.wait_until_ready()
        except BaseException:
            machine.halt()
            raise
        (machine.state / "ready").touch()
        return cluster

    @property
    def crd_version(self) -> str:
        """That of the CRD server, which may be newer than the rest."""
        kept = self.machine.state / "crd-version"
        return kept.read_text() if kept.exists() else super().crd_version

    def wait_until_ready(self, timeout_s: float = 60) -> None:
        """Wait until the node is Ready and pods can be made."""
        self._await_node("True", timeout_s)
        self.wait_for("serviceaccount", "default", lambda _: True)
        self.wait_for("service", "kubernetes", lambda _: True)

    def _await_node(self, status: str, timeout_s: float) -> None:
        log = self.machine.log("kubelet")

        def holds() -> bool:
            conditions = self.get("node", NODE)["status"]["conditions"]
            return any(each["type"] == "Ready" and each["status"] == status for each in conditions)

        wait_until(f"the node's condition Ready to be {status}", holds, timeout_s=timeout_s, log=log)

    def stop_kubelet(self, timeout_s: float = 60) -> None:
        """Stop the kubelet and wait until the cluster has given the node up."""
        self._node.stop_kubelet()
        self._await_node("Unknown", timeout_s)

    def start_kubelet(self, timeout_s: float = 60) -> None:
        """Start the kubelet and wait until the node is Ready."""
        self._node.start_kubelet()
        self._await_node("True", timeout_s)

    def stop_apiserver(self) -> None:
        """Stop the API server; watches break, and nothing can be read or written."""
        self.machine.stop("kube-apiserver", timeout_s=1)  # it would wait a minute for its watches to end

    def start_apiserver(self) -> None:
        """Start the API server and wait until it is ready."""
        self._control_plane.start_apiserver()

    def image(self, target: str) -> str:
        """Reference of the image of a target of the Dockerfile, made and loaded if needed; imagePullPolicy Never."""
        return self._loaded(target, lambda: self._store.project(target))

    def base_image(self) -> str:
        """Reference of a small image with Debian and its Python, loaded if needed; imagePullPolicy Never."""
        return self._loaded("", self._store.base)

    def _loaded(self, target: str, make: Callable[[], str]) -> str:
        if target not in self._images:  # else nobody waits while another process makes images
            self.load(image := make())
            self._images[target] = image
        return self._images[target]

    def load(self, image: str, store: ImageStore | None = None) -> None:
        """Bring an image of a store, by default the project's, into the node."""
        self._node.load(image, store or self._store)

    def stop(self) -> None:
        """Remove the cluster without a trace but its images."""
        self.machine.halt()


def chosen_crd_server() -> Path | None:
    """The CRD server of a current Kubernetes, unless $REEF_CRD_SERVER is 0 or it cannot be had; that is said then."""
    if os.environ.get("REEF_CRD_SERVER") == "0":
        return None
    try:
        return find_crd_server()
    except (ClusterError, OSError) as reason:  # OSError: a full disk
        say(f"Custom resources are served by Kubernetes {VERSION}, which checks no CEL rules: {reason}")
        return None


def machine_of(name: str) -> Machine:
    """The machine, running or not, of the cluster with this name."""
    return Machine(cache_folder() / "clusters" / name, name)


def given_cluster() -> Cluster | None:
    """The cluster that $KUBECONFIG names, if it does and it is none of our own."""
    named = os.environ.get("KUBECONFIG")
    if not named or Path(named).is_relative_to(cache_folder() / "clusters"):
        return None
    kubectl = shutil.which("kubectl", path=f"{os.environ.get('KUBEBUILDER_ASSETS', '')}:{os.environ['PATH']}")
    return Cluster(Path(named), kubectl or find_binaries().kubectl)


@contextlib.contextmanager
def used_cluster(name: str) -> Iterator[OwnCluster]:
    """The cluster of this name for as long as it is used, by one process at a time; another one waits.

    It is stopped afterwards, unless a person started it.
    """
    check_machine()
    machine = machine_of(name)
    with locked(cache_folder() / "clusters" / f"{name}.lock"):
        stays = (machine.state / "keep").exists()
        if stays:
            say(f"Using the cluster {name!r}, which stays when the tests end")
        else:
            machine.halt()  # its user was killed
        try:
            yield OwnCluster.start(name)
        finally:
            if not stays:
                with stage(f"Stopping the cluster {name!r}"):
                    machine.halt()
