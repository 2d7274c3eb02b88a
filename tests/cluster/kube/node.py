"""The node's programs inside the machine: containerd, kubelet, kube-proxy, and a resolver for names of services."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import yaml

from kube.binaries import Binaries
from kube.images import PAUSE, ImageStore
from kube.machine import Machine
from kube.pki import NODE
from kube.progress import ClusterError, wait_until

SOCKET = "/run/containerd/containerd.sock"


class Node:
    """One node with a kubelet.

    Args:
        machine: where its programs run.
        binaries: the programs.
        images: folder of containerd's images; kept when the cluster stops, so that a later one need not import them.
    """

    def __init__(self, machine: Machine, binaries: Binaries, images: Path) -> None:
        self._machine = machine
        self._binaries = binaries
        self._images = images

    def start(self, store: ImageStore) -> None:
        """Start everything; the node registers itself, and is Ready some seconds later."""
        self._configure_network()
        self._start_containerd()
        self.load(PAUSE, store)
        self._start_resolver()
        self._start_proxy()
        self.start_kubelet()

    def _start_containerd(self) -> None:
        runtime = {"runtime_type": "io.containerd.runc.v2"}
        plugin = {
            "sandbox_image": PAUSE,
            "restrict_oom_score_adj": True,  # machines without CAP_SYS_RESOURCE: no sandbox would start
            "cni": {"bin_dir": "/usr/lib/cni", "conf_dir": str(self._machine.state / "cni")},
            "containerd": {"runtimes": {"runc": runtime}},
        }
        tables = "\n".join(toml('plugins."io.containerd.grpc.v1.cri"', plugin))
        config = self._machine.state / "containerd.toml"
        head = f'version = 2\nroot = "{self._images}"\nstate = "/run/containerd"\n[grpc]\naddress = "{SOCKET}"\n'
        config.write_text(head + tables)
        self._launch_containerd(config)
        left = self.ctr("containers", "ls", "-q").split()
        if left:  # of a cluster that was killed; containerd's CRI part has already taken them for its own
            self.ctr("containers", "rm", *left)
            self._machine.stop("containerd")
            self._launch_containerd(config)

    def _launch_containerd(self, config: Path) -> None:
        self._machine.start("containerd", ["containerd", "--config", config, "--log-level", "warn"])
        log = self._machine.log("containerd")
        wait_until("containerd", lambda: bool(self.ctr("version")), timeout_s=30, log=log)

    def ctr(self, *arguments: str, timeout_s: float = 60) -> str:
        """Run containerd's own command line on the images and containers of Kubernetes."""
        return self._machine.run(["ctr", "-n", "k8s.io", *arguments], timeout_s=timeout_s)

    def load(self, image: str, store: ImageStore) -> None:
        """Bring an image of the store into containerd, if it is not there yet."""
        if image in self.ctr("images", "ls", "-q").split():
            return
        with store.archived(image) as archive:
            self.ctr("images", "import", str(archive), timeout_s=600)
        if image not in self.ctr("images", "ls", "-q").split():
            raise ClusterError(f"containerd imported an archive, but has no image {image}")
        self._forget_old(image.rpartition(":")[0], store)

    def _forget_old(self, name: str, store: ImageStore) -> None:
        """Remove tags that the store has forgotten, so that the disk does not fill with every change."""
        for image in self.ctr("images", "ls", "-q").split():
            if image.startswith(f"{name}:") and not store.has(image):
                self.ctr("images", "rm", image)

    def _configure_network(self) -> None:
        network = self._machine.network
        pods = {"subnet": network.pods, "gateway": network.bridge}
        bridge = {
            "cniVersion": "0.4.0",
            "name": "reef",
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": True,
            "ipMasq": True,
            "hairpinMode": True,  # a pod reaches itself through its service
            "ipam": {"type": "host-local", "ranges": [[pods]], "routes": [{"dst": "0.0.0.0/0"}]},
        }
        folder = self._machine.state / "cni"
        folder.mkdir(exist_ok=True)
        (folder / "10-reef.conf").write_text(json.dumps(bridge))

    def _start_resolver(self) -> None:
        kubeconfig = self._machine.state / "pki" / "admin.kubeconfig"
        command = [sys.executable, "-m", "kube.resolver", str(kubeconfig), self._machine.network.bridge]
        self._machine.start("resolver", command, env={"PYTHONPATH": str(Path(__file__).parents[1])})

    def _start_proxy(self) -> None:
        arguments = {
            "kubeconfig": self._machine.state / "pki" / "proxy.kubeconfig",
            "proxy-mode": "iptables",
            "hostname-override": NODE,
            "cluster-cidr": self._machine.network.pods,
            "iptables-min-sync-period": "100ms",
            # Left as they are: a network namespace may not set them.
            "conntrack-max-per-core": 0,
            "conntrack-tcp-timeout-established": 0,
            "conntrack-tcp-timeout-close-wait": 0,
        }
        program = self._binaries.folder / "kube-proxy"
        self._machine.start("kube-proxy", [program, *(f"--{key}={value}" for key, value in arguments.items())])

    def start_kubelet(self) -> None:
        """Start the kubelet; nothing if it runs."""
        config = self._machine.state / "kubelet.yaml"
        config.write_text(yaml.safe_dump(self._kubelet_config()))
        arguments = {
            "config": config,
            "kubeconfig": self._machine.state / "pki" / "kubelet.kubeconfig",
            "root-dir": self._machine.state / "kubelet",
            "hostname-override": NODE,
            "node-ip": self._machine.network.node,
            "container-runtime": "remote",
            "container-runtime-endpoint": f"unix://{SOCKET}",
        }
        program = self._binaries.folder / "kubelet"
        self._machine.start("kubelet", [program, *(f"--{key}={value}" for key, value in arguments.items())])

    def stop_kubelet(self) -> None:
        """Stop the kubelet; containers go on, and their node is NotReady after ten seconds."""
        self._machine.stop("kubelet")

    def _kubelet_config(self) -> dict[str, object]:
        pki = self._machine.state / "pki"
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(pki / "ca.crt")},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(pki / "kubelet.crt"),
            "tlsPrivateKeyFile": str(pki / "kubelet.key"),
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": self._machine.cgroup,
            "failSwapOn": False,
            "clusterDomain": "cluster.local",
            "clusterDNS": [self._machine.network.bridge],
            "resolvConf": "",
            "maxPods": 250,
            "kubeAPIQPS": 50,
            "kubeAPIBurst": 100,
            "nodeStatusUpdateFrequency": "2s",
            "nodeLeaseDurationSeconds": 8,
            "evictionHard": {"nodefs.available": "1%", "imagefs.available": "1%", "memory.available": "100Mi"},
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
        }


def toml(table: str, values: dict[str, object]) -> list[str]:
    """Lines of a TOML table and the tables in it; strings and booleans are written as JSON writes them."""
    plain = [f"{key} = {json.dumps(value)}" for key, value in values.items() if not isinstance(value, dict)]
    lines = [f"[{table}]", *plain]
    for key, value in values.items():
        if isinstance(value, dict):
            lines += toml(f"{table}.{key}", value)
    return lines
