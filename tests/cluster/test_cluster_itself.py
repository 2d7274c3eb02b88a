"""The test cluster is a real Kubernetes: pods run, names resolve, and its parts can be lost and come back."""

from __future__ import annotations

import urllib.request
from typing import Any

import kube.cluster
import pytest
from kube.binaries import VERSION
from kube.cluster import Cluster, OwnCluster, chosen_crd_server
from kube.hollow import HollowNodes
from kube.pki import NODE
from kube.progress import ClusterError, wait_until

SERVE = "echo serving; exec python3 -m http.server 8000 --directory /etc"


def pod(name: str, image: str, command: str, **more: Any) -> dict[str, Any]:
    container = {"name": "main", "image": image, "imagePullPolicy": "Never", "command": ["sh", "-c", command]}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 1, "restartPolicy": "Never"} | more
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": spec}


def service(name: str, app: str, **more: Any) -> dict[str, Any]:
    spec = {"selector": {"app": app}, "ports": [{"port": 80, "targetPort": 8000}]} | more
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def ready_status(cluster: Cluster) -> str:
    conditions = cluster.get("node", NODE)["status"]["conditions"]
    return next(each["status"] for each in conditions if each["type"] == "Ready")


def fetched(url: str) -> bool:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return b"debian" in answer.read()


@pytest.mark.parametrize("reason", [ClusterError("no package"), OSError(28, "No space left on device")])
def test_without_the_server_of_custom_resources_the_reason_is_printed(
    reason: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def fails() -> None:
        raise reason

    monkeypatch.delenv("REEF_CRD_SERVER", raising=False)
    monkeypatch.setattr(kube.cluster, "find_crd_server", fails)
    assert chosen_crd_server() is None
    assert f"served by Kubernetes {VERSION}, which checks no CEL rules: {reason}\n" in capsys.readouterr().err


def test_the_node_is_ready(own_cluster: OwnCluster):
    assert ready_status(own_cluster) == "True"


def test_a_pod_runs_and_its_logs_can_be_read(own_cluster: OwnCluster, namespace: str):
    own_cluster.apply(
        pod("hello", own_cluster.base_image(), "echo hello from $(hostname); exit 3"), namespace=namespace
    )
    own_cluster.wait_for_phase("hello", "Failed", namespace=namespace)
    assert own_cluster.kubectl("logs", "hello", "-n", namespace) == "hello from hello\n"
    (status,) = own_cluster.get("pod", "hello", namespace=namespace)["status"]["containerStatuses"]
    assert status["state"]["terminated"]["exitCode"] == 3


def test_a_service_is_reached_by_name_and_by_address(own_cluster: OwnCluster, namespace: str):
    image = own_cluster.base_image()
    web = pod("web-0", image, SERVE, hostname="first", subdomain="pods")
    headless = service("pods", "web-0", clusterIP="None")
    own_cluster.apply([web, service("site", "web-0"), headless, pod("client", image, "sleep 600")], namespace=namespace)
    own_cluster.wait_for_phase("web-0", "Running", namespace=namespace)
    own_cluster.wait_for_phase("client", "Running", namespace=namespace)
    address = own_cluster.get("service", "site", namespace=namespace)["spec"]["clusterIP"]
    wait_until("the service from this machine", lambda: fetched(f"http://{address}/hostname") or True, timeout_s=20)

    def in_pod(expression: str) -> str:
        program = f"import socket, urllib.request; print({expression})"
        return own_cluster.kubectl("exec", "client", "-n", namespace, "--", "python3", "-c", program).strip()

    assert in_pod(f"socket.gethostbyname('site.{namespace}.svc.cluster.local')") == address
    assert in_pod("urllib.request.urlopen('http://site/os-release', timeout=5).status") == "200"
    own = own_cluster.get("pod", "web-0", namespace=namespace)["status"]["podIP"]
    wait_until("the headless name", lambda: in_pod("socket.gethostbyname('pods')") == own, timeout_s=20)
    assert in_pod("socket.gethostbyname('first.pods')") == own
    with pytest.raises(ClusterError, match="Name or service not known"):
        in_pod("socket.gethostbyname('no-such-service')")


def test_pods_that_claim_gpus_are_scheduled_by_what_the_node_says(own_cluster: OwnCluster, namespace: str):
    def claim(name: str, gpus: int) -> dict[str, Any]:
        made = pod(name, own_cluster.base_image(), "sleep 600")
        made["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
        return made

    own_cluster.set_gpus(4)
    own_cluster.apply([claim("fits", 3)], namespace=namespace)
    own_cluster.wait_for_phase("fits", "Running", namespace=namespace)
    own_cluster.apply([claim("waits", 2)], namespace=namespace)

    def unschedulable(found: dict[str, Any]) -> bool:
        conditions = found["status"].get("conditions", [])
        return any("Insufficient nvidia.com/gpu" in each.get("message", "") for each in conditions)

    own_cluster.wait_for("pod", "waits", unschedulable, namespace=namespace)


def test_objects_outlive_the_api_server(own_cluster: OwnCluster, namespace: str):
    own_cluster.kubectl("create", "configmap", "kept", "--from-literal=key=value", "-n", namespace)
    own_cluster.stop_apiserver()
    try:
        with pytest.raises(ClusterError, match="refused"):
            own_cluster.kubectl("get", "nodes")
    finally:
        own_cluster.start_apiserver()
    assert own_cluster.get("configmap", "kept", namespace=namespace)["data"] == {"key": "value"}


def test_a_node_without_kubelet_is_given_up_and_comes_back(own_cluster: OwnCluster):
    own_cluster.set_gpus(4)
    own_cluster.stop_kubelet()
    try:
        assert ready_status(own_cluster) == "Unknown"
    finally:
        own_cluster.start_kubelet()
    assert ready_status(own_cluster) == "True"
    assert own_cluster.get("node", NODE)["status"]["allocatable"]["nvidia.com/gpu"] == "4"


def test_hollow_nodes_hold_many_pods(cluster: Cluster, namespace: str):
    placed = {"nodeSelector": HollowNodes.SELECTOR, "tolerations": [HollowNodes.TOLERATION]}
    pods = [pod(f"many-{number}", "nothing", "true", **placed) for number in range(40)]

    def phases() -> list[str]:
        return [each["status"]["phase"] for each in cluster.get("pod", namespace=namespace)["items"]]

    with cluster.hollow_nodes(3) as nodes:
        cluster.apply(pods, namespace=namespace)
        wait_until("40 pods to run", lambda: phases() == ["Running"] * 40, timeout_s=30)
        nodes.finish(namespace, "many-0", exit_code=1)
        assert cluster.get("pod", "many-0", namespace=namespace)["status"]["phase"] == "Failed"
        cluster.kubectl("delete", "pods", "--all", "-n", namespace, "--wait=false")
        wait_until("40 pods to vanish", lambda: phases() == [], timeout_s=30)


def test_waiting_says_what_it_waited_for(cluster: Cluster):
    with pytest.raises(ClusterError, match="1 s in vain for configmap/never in default"):
        cluster.wait_for("configmap", "never", lambda _: True, timeout_s=1)
