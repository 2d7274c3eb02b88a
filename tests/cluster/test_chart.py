"""The chart by Helm's own library on a real server, and the operator with the chart's rights and no others."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import helm_python
import pytest
import yaml
from installation import CHART, CHILDREN, Installation, pool, small_job
from kube.api import Api, ApiError
from kube.cluster import Cluster
from kube.progress import wait_until

pytestmark = pytest.mark.timeout(600)
DEFINITION = "rltrainingjobs.reef.dev"
GENERATED = CHART / "definitions" / f"{DEFINITION}.yaml"
OF_RELEASE = "deployments,services,serviceaccounts,roles,rolebindings,pods,configmaps,leases"
LACKING_RIGHT = r"forbidden: User|cannot \w+ resource"  # and not: forbidden, as the namespace is being deleted


def test_the_chart_is_linted_and_rendered() -> None:
    report = helm_python.lint(CHART, {}, strict=True)
    assert report["total_charts_linted"] == 1
    assert not report["errors"], report
    with helm_python.Chart.load(CHART) as chart:
        files = chart.render({}, name="reef", namespace="reef-system")
    kinds = {found["kind"] for text in files.values() for found in parsed(text)}
    assert {"CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding", "Deployment", "ServiceAccount"} <= kinds


def parsed(text: str) -> list[dict[str, Any]]:
    """The objects of a rendered file; none of NOTES.txt."""
    found = list(yaml.safe_load_all(text)) if text.lstrip().startswith(("apiVersion", "---")) else []
    return [each for each in found if each]


def test_the_definition_is_installed_with_the_rules_that_the_server_checks(
    reef: Installation, cluster: Cluster
) -> None:
    (installed,) = cluster.get("customresourcedefinition", DEFINITION)["spec"]["versions"]
    (generated,) = yaml.safe_load(GENERATED.read_text())["spec"]["versions"]
    with_rules = installed["schema"] == generated["schema"]
    assert with_rules == cluster.checks_rules == ("x-kubernetes-validations" in str(installed))


def test_a_release_for_one_namespace_comes_changes_and_goes(
    reef: Installation, cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    """A second release beside the first: Roles instead of ClusterRoles, and nothing of it stays."""
    second = Installation(cluster, namespace, "second")
    own = {"watch": {"allNamespaces": False}, "crds": {"install": False}}
    before = cluster_wide(cluster)
    second.install(**own)
    assert cluster_wide(cluster) == before, "nothing that belongs to the whole cluster"
    old = second.pod()["metadata"]["uid"]

    second.upgrade(operator={"logLevel": "debug"}, **own)
    new = second.pod()
    assert new["metadata"]["uid"] != old
    level = next(each for each in new["spec"]["containers"][0]["env"] if each["name"] == "REEF_OPERATOR_LOG_LEVEL")
    assert level["value"] == "debug"
    with second.helm() as helm:
        assert [each["revision"] for each in helm.history("second")] == [1, 2]

    api = as_operator(second, tmp_path)
    api.request("GET", f"/apis/reef.dev/v1/namespaces/{namespace}/rltrainingjobs")
    for path in ("/apis/reef.dev/v1/rltrainingjobs", "/apis/reef.dev/v1/namespaces/default/rltrainingjobs"):
        assert refusal(api, "GET", path) == 403

    second.uninstall()
    mine = "app.kubernetes.io/instance=second"
    wait_until(
        "the release to be gone",
        lambda: not cluster.kubectl("get", OF_RELEASE, "-n", namespace, "-l", mine, "-o", "name").split(),
        timeout_s=60,
    )
    cluster.get("customresourcedefinition", DEFINITION)


def test_an_operator_of_two_namespaces_trains_there_and_nowhere_else_also_while_one_is_closed(
    reef: Installation, cluster: Cluster, namespace: str, without_operator: Any
) -> None:
    """Roles are enough for a job's whole life; the operator for all namespaces is away meanwhile."""
    without_operator()
    with (
        cluster.namespace("operator") as own,
        cluster.namespace("other") as other,
        cluster.namespace("unwatched") as unwatched,
    ):
        second = Installation(cluster, own, "second")
        watched = {"allNamespaces": False, "namespaces": [namespace, other]}
        second.install(watch=watched, crds={"install": False})
        for place in (unwatched, namespace, other):
            cluster.apply(small_job("plain", iterations=2, workers=[pool()]), namespace=place)
        for place in (namespace, other):
            status = second.wait_for_phase("plain", "Succeeded", "Failed", namespace=place)
            assert (status["phase"], status["attempts"]) == ("Succeeded", 1), status["message"]
            told = partial(second.events, "plain", place)
            wait_until("its Events", lambda told=told: "Succeeded" in {reason for reason, _ in told()})
        assert reef.status("plain", unwatched) == {}
        log = second.log()
        assert "caches are filled" in log and not re.search(LACKING_RIGHT, log)
        for place in (unwatched, namespace, other):
            cluster.kubectl("delete", "rltrainingjob", "plain", "-n", place, "--timeout=60s")
        for place in (namespace, other):
            mine = ("get", CHILDREN, "-n", place, "-l", "reef.dev/job=plain", "-o", "name")
            gone = partial(cluster.kubectl, *mine)
            wait_until("everything of the job to go", lambda gone=gone: not gone().split(), timeout_s=180)
        closed_and_opened(second, namespace, other)
        second.uninstall()


def closed_and_opened(second: Installation, namespace: str, other: str) -> None:
    """The operator's rights in one namespace are withdrawn before it starts, and given back; then that one goes.

    Meanwhile the other is served, and nothing makes the operator sick.
    """
    cluster = second.cluster
    binding = cluster.get("rolebinding", "second-reef", namespace=other)
    cluster.kubectl("delete", "rolebinding", "second-reef", "-n", other)
    mine = second.pod()["metadata"]["name"]
    # Its process ends at once; a kubelet that missed this looks for dead containers once a minute.
    cluster.kubectl("delete", "pod", mine, "-n", second.namespace, timeout_s=180)
    second.await_operator()
    for place in (namespace, other):
        cluster.apply(small_job("idle", suspend=True), namespace=place)
    second.wait_for_phase("idle", "Suspended", namespace=namespace)
    log = second.log()
    assert re.search(f"the jobs of namespace {other} are not looked after: .*HTTP 403", log), log
    assert second.status("idle", other) == {}

    cluster.apply({**binding, "metadata": {"name": "second-reef", "namespace": other}}, namespace=other)
    second.wait_for_phase("idle", "Suspended", namespace=other, timeout_s=60)

    cluster.kubectl("delete", "namespace", other, timeout_s=120)
    cluster.apply(small_job("later", suspend=True), namespace=namespace)
    second.wait_for_phase("later", "Suspended", namespace=namespace)
    assert second.pod()["status"]["containerStatuses"][0]["restartCount"] == 0
    cluster.kubectl("delete", "rltrainingjob", "--all", "-n", namespace, "--timeout=60s")


def cluster_wide(cluster: Cluster) -> set[str]:
    """Names of the chart's kinds of cluster-wide objects."""
    return set(cluster.kubectl("get", "clusterroles,clusterrolebindings,crds", "-o", "name").split())


POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "mine"}, "spec": {"containers": []}}
FORBIDDEN = [
    ("GET", "/api/v1/secrets", None),
    ("GET", "/api/v1/namespaces/{}/secrets?watch=true&timeoutSeconds=1", None),
    ("PATCH", "/api/v1/namespaces/{}/secrets/any", {}),
    ("GET", "/api/v1/nodes", None),
    ("GET", "/api/v1/nodes/any", None),
    ("GET", "/api/v1/namespaces", None),
    ("DELETE", "/api/v1/namespaces/{}", None),
    ("POST", "/api/v1/namespaces/{}/pods", POD),
    ("POST", "/api/v1/namespaces/{}/pods/any/exec?command=sh", None),
    ("GET", "/api/v1/namespaces/{}/pods/any/log", None),
    ("GET", "/api/v1/persistentvolumeclaims", None),
    ("DELETE", "/apis/reef.dev/v1/namespaces/{}/rltrainingjobs", None),
    ("POST", "/apis/reef.dev/v1/namespaces/{}/rltrainingjobs", {}),
    ("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles", None),
    ("POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings", {}),
    ("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", None),
]


def test_the_operator_has_the_rights_of_the_chart_and_no_others(
    reef: Installation, cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    """With the token of the operator's pod: what it does not need is refused; what it needs brings a job to its end."""
    cluster.apply(small_job("plain", iterations=2), namespace=namespace)
    api = as_operator(reef, tmp_path)
    for method, path, body in FORBIDDEN:
        assert refusal(api, method, path.format(namespace), body) == 403, f"{method} {path}"
    assert api.request("GET", "/apis/reef.dev/v1/rltrainingjobs")["items"]
    with pytest.raises(ApiError, match="cannot list resource"):
        api.request("GET", "/api/v1/secrets")

    status = reef.wait_for_phase("plain", "Succeeded", "Failed", namespace=namespace)
    assert (status["phase"], status["attempts"]) == ("Succeeded", 1)
    assert not re.search(LACKING_RIGHT, reef.log())


def as_operator(installation: Installation, folder: Path) -> Api:
    """Requests with the token that lies in the operator's pod."""
    name = installation.pod()["metadata"]["name"]
    token = installation.cluster.kubectl("exec", "-n", installation.namespace, name, "--", "cat", TOKEN)
    config = yaml.safe_load(installation.cluster.kubeconfig.read_text())
    for user in config["users"]:
        user["user"] = {"token": token}
    kubeconfig = folder / f"{name}.kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config))
    return Api(kubeconfig)


TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"


def refusal(api: Api, method: str, path: str, body: Any = None) -> int:
    """HTTP status with which a request was refused; 0 when it was not."""
    try:
        api.request(method, path, body, kind="merge" if method == "PATCH" else "")
    except ApiError as error:
        return error.status
    return 0
