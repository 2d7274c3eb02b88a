"""etcd, kube-apiserver, the CRD server, kube-controller-manager and kube-scheduler, inside the machine."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from kube.api import Api
from kube.binaries import Binaries
from kube.machine import Machine
from kube.pki import make_certificates
from kube.progress import run, wait_until
from kube.registrar import MINE, PORT, SERVICES

ETCD = "http://127.0.0.1:2379"
# Scale tests come from one user; the tests measure the operator, not this limit.
REQUESTS: dict[str, object] = {"max-requests-inflight": 2000, "max-mutating-requests-inflight": 1000}


class ControlPlane:
    """The programs; each can be stopped and started alone."""

    def __init__(self, machine: Machine, binaries: Binaries) -> None:
        self._machine = machine
        self._binaries = binaries
        self._pki = machine.state / "pki"

    def start(self, crd_server: Path | None) -> None:
        """Start all and wait until the API server is ready.

        Args:
            crd_server: the program that serves custom resources; without it the API server does.
        """
        make_certificates(self._pki, self._machine.network)
        self.start_etcd()
        self.start_apiserver()
        if crd_server:
            self.start_crd_server(crd_server)
        self.start_controllers()

    def start_etcd(self) -> None:
        """The data is not synchronised to the disk: it need not outlive this machine."""
        peers = "http://127.0.0.1:2380"
        arguments = {
            "data-dir": self._machine.state / "etcd",
            "listen-client-urls": ETCD,
            "advertise-client-urls": ETCD,
            "listen-peer-urls": peers,
            "initial-advertise-peer-urls": peers,
            "initial-cluster": f"default={peers}",
            "unsafe-no-fsync": "true",
            "quota-backend-bytes": 4 << 30,
            "log-level": "warn",
        }
        self._start("etcd", self._binaries.etcd, arguments)

    def start_apiserver(self) -> None:
        """Start it and wait until it is ready."""
        pki, network = self._pki, self._machine.network
        arguments = {
            "etcd-servers": ETCD,
            "bind-address": "0.0.0.0",
            "advertise-address": network.node,
            "secure-port": 6443,
            "tls-cert-file": pki / "apiserver.crt",
            "tls-private-key-file": pki / "apiserver.key",
            "client-ca-file": pki / "ca.crt",
            "service-account-key-file": pki / "tokens.pub",
            "service-account-signing-key-file": pki / "tokens.key",
            "service-account-issuer": "https://kubernetes.default.svc.cluster.local",
            "service-cluster-ip-range": network.services,
            "authorization-mode": "Node,RBAC",
            "enable-admission-plugins": "NodeRestriction",
            "allow-privileged": "true",
            "kubelet-client-certificate": pki / "admin.crt",
            "kubelet-client-key": pki / "admin.key",
            "kubelet-certificate-authority": pki / "ca.crt",
            "kubelet-preferred-address-types": "InternalIP,Hostname",
            "proxy-client-cert-file": pki / "front-proxy.crt",
            "proxy-client-key-file": pki / "front-proxy.key",
            "requestheader-client-ca-file": pki / "ca.crt",
            "requestheader-allowed-names": "front-proxy",
            "requestheader-username-headers": "X-Remote-User",
            "requestheader-group-headers": "X-Remote-Group",
            "requestheader-extra-headers-prefix": "X-Remote-Extra-",
        } | REQUESTS
        log = self._machine.log("kube-apiserver")
        with self._closed_to_pods():
            self._start("kube-apiserver", self._binaries.apiserver, arguments)
            wait_until("the API server to be ready", self.ready, timeout_s=90, poll_s=0.2, log=log)
            if self._machine.process("crd-server").pid:
                wait_until("the API server to hand custom resources on", self._hands_on, log=log)

    @contextlib.contextmanager
    def _closed_to_pods(self) -> Iterator[None]:
        """Pods meet an API server that is ready, as behind a load balancer: one that starts knows few resources."""
        rule = ["INPUT", "-i", "cni0", "-p", "tcp", "--dport", "6443", "-j", "REJECT", "--reject-with", "tcp-reset"]
        self._machine.run(["iptables", "-w", "-I", *rule])
        try:
            yield
        finally:
            self._machine.run(["iptables", "-w", "-D", *rule])

    def _hands_on(self) -> bool:
        """Whether the API server sends requests for everything that the registrar has registered to the CRD server."""
        api = Api(self._pki / "admin.kubeconfig")
        services = api.request("GET", f"{SERVICES}?labelSelector={MINE}")["items"]
        for each in services:
            api.request("GET", f"/apis/{each['spec']['group']}/{each['spec']['version']}")
        states = [state for each in services for state in each["status"]["conditions"] if state["type"] == "Available"]
        return bool(services) and all(state["status"] == "True" for state in states)

    def start_crd_server(self, program: Path) -> None:
        """Start it behind the API server, which hands definitions and their resources on; wait until it does."""
        pki = self._pki
        itself = pki / "crd-server.kubeconfig"
        arguments = {
            "etcd-servers": ETCD,
            "bind-address": "127.0.0.1",
            "secure-port": PORT,
            "tls-cert-file": pki / "crd-server.crt",
            "tls-private-key-file": pki / "crd-server.key",
            "kubeconfig": itself,
            "authentication-kubeconfig": itself,
            "authorization-kubeconfig": itself,
            # What an API server of 1.20 has no objects for.
            "enable-priority-and-fairness": "false",
            "disable-admission-plugins": "MutatingAdmissionPolicy,ValidatingAdmissionPolicy",
        } | REQUESTS
        self._start("crd-server", program, arguments)
        registrar = [sys.executable, "-m", "kube.registrar", str(pki)]
        self._machine.start("registrar", registrar, env={"PYTHONPATH": str(Path(__file__).parents[1])})
        wait_until(
            "the CRD server ($REEF_CRD_SERVER=0 does without)",
            self._hands_on,
            timeout_s=60,
            log=self._machine.log("crd-server"),
        )

    def start_controllers(self) -> None:
        """Controller-manager (a node that is silent for 20 s is NotReady) and scheduler."""
        pki = self._pki
        manager = {
            "kubeconfig": pki / "controller-manager.kubeconfig",
            "service-account-private-key-file": pki / "tokens.key",
            "root-ca-file": pki / "ca.crt",
            "use-service-account-credentials": "true",
            "leader-elect": "false",
            "node-monitor-period": "2s",
            "node-monitor-grace-period": "20s",
            "kube-api-qps": 200,
            "kube-api-burst": 400,
            "v": 2,  # the log says which objects the garbage collector deletes
        }
        self._start("kube-controller-manager", self._binaries.folder / "kube-controller-manager", manager)
        scheduler = {
            "kubeconfig": pki / "scheduler.kubeconfig",
            "leader-elect": "false",
            "kube-api-qps": 200,
            "kube-api-burst": 400,
        }
        self._start("kube-scheduler", self._binaries.folder / "kube-scheduler", scheduler)

    def ready(self) -> bool:
        """Whether the API server says that it is."""
        config = self._pki / "admin.kubeconfig"
        command = [
            str(self._binaries.kubectl),
            "--kubeconfig",
            str(config),
            "--request-timeout=5s",
            "get",
            "--raw",
            "/readyz",
        ]
        return run(command, timeout_s=10).strip() == "ok"

    def _start(self, name: str, program: object, arguments: dict[str, object]) -> None:
        self._machine.start(name, [str(program), *(f"--{key}={value}" for key, value in arguments.items())])
