"""The operator as the chart starts it, but as a process of the node: no image is needed, and this tree is measured."""

from __future__ import annotations

import contextlib
import os
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import helm_python
from installation import CHART
from kube.cluster import OwnCluster
from kube.progress import stage, wait_until
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.scale import heads

NAMESPACE = "reef-system"
RELEASE = "reef"
ACCOUNT = "/run/secrets/kubernetes.io/serviceaccount"
TOKEN_S = 7200
TICK_S = os.sysconf("SC_CLK_TCK")
HOLLOW_ADDRESSES = "198.18.0.0/15"


class OperatorProcess:
    """A running operator, looked at from outside.

    Args:
        pid: of its process, on this machine.
        address: where it serves its metrics.
    """

    def __init__(self, pid: int, address: str) -> None:
        self._folder = Path(f"/proc/{pid}")
        self._url = f"http://{address}:8081/metrics"

    def memory_mb(self) -> float:
        """Resident memory now."""
        return self._status("VmRSS")

    def reset_peak(self) -> None:
        """Let `peak_mb` begin anew."""
        (self._folder / "clear_refs").write_text("5")

    def peak_mb(self) -> float:
        """Most resident memory since `reset_peak`."""
        return self._status("VmHWM")

    def cpu_s(self) -> float:
        """Processor time so far."""
        fields = (self._folder / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK_S

    def requests(self) -> Counter[str]:
        """Requests to the API server so far, by verb, those that were refused included."""
        with urllib.request.urlopen(self._url, timeout=10) as answer:
            families = text_string_to_metric_families(answer.read().decode())
        found: Counter[str] = Counter()
        for sample in (sample for family in families for sample in family.samples):
            if sample.name == "reef_operator_api_requests_total":
                found[sample.labels["verb"]] += int(sample.value)
        return found

    def _status(self, key: str) -> float:
        lines = (self._folder / "status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:")) * 1024 / 1e6


@contextlib.contextmanager
def operator(cluster: OwnCluster) -> Iterator[OperatorProcess]:
    """Install the chart without a pod, and run what its Deployment says on the node, with its service account."""
    machine = cluster.machine
    with helm_python.Config(kubeconfig_path=cluster.kubeconfig, namespace=NAMESPACE) as helm:
        with stage("Installing the chart, without a pod"):
            values = {"operator": {"replicas": 0}}
            helm.install(CHART, RELEASE, values, namespace=NAMESPACE, create_namespace=True)
        try:
            command, variables = _as_installed(cluster)
            machine.log("reef-operator").unlink(missing_ok=True)
            machine.start("reef-operator", command, variables)
            try:
                wait_until("the operator to work", lambda: _works(cluster), log=machine.log("reef-operator"))
                yield OperatorProcess(_child_of(machine.process("reef-operator").pid), machine.network.node)
            finally:
                machine.stop("reef-operator")
        finally:
            helm.uninstall(RELEASE)


def _as_installed(cluster: OwnCluster) -> tuple[list[str], dict[str, str]]:
    """Command and variables of the Deployment's container; its account's token where a pod would have it."""
    (deployment,) = cluster.get("deployments", namespace=NAMESPACE)["items"]
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    given = {each["name"]: each["value"] for each in container["env"] if "value" in each}
    account = pod["serviceAccountName"]
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token"
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": TOKEN_S}}
    token = cluster.api.request("POST", path, asked)["status"]["token"]
    authority = (cluster.machine.state / "pki" / "ca.crt").read_text()
    for name, text in (("token", token), ("ca.crt", authority), ("namespace", NAMESPACE)):
        cluster.machine.run(["sh", "-c", f"mkdir -p {ACCOUNT} && cat > {ACCOUNT}/{name}"], stdin=text)
    from_kubernetes = {
        "KUBERNETES_SERVICE_HOST": cluster.machine.network.first_service,
        "KUBERNETES_SERVICE_PORT": "443",
        "POD_NAME": "reef-operator",
        "POD_NAMESPACE": NAMESPACE,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    return [sys.executable, "-m", "reef_operator.main", *container.get("args", [])], given | from_kubernetes


def _works(cluster: OwnCluster) -> bool:
    log = cluster.machine.log("reef-operator").read_text()
    return "working on jobs" in log


def _child_of(pid: int | None) -> int:
    """The program itself; what was started enters the node's namespaces and waits for it."""
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


@contextlib.contextmanager
def answering_heads(cluster: OwnCluster, *, still: bool = False) -> Iterator[None]:
    """Let every address of a hollow pod answer as a head that trains; a still one gets no further."""
    machine = cluster.machine
    route = ["local", HOLLOW_ADDRESSES, "dev", "lo"]
    machine.run(["ip", "route", "replace", *route])
    machine.start("heads", [sys.executable, heads.__file__, *(["still"] if still else [])])
    try:
        yield
    finally:
        machine.stop("heads")
        machine.run(["ip", "route", "del", *route])
