"""What the chart makes, in the ways in which it is installed."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import helm_python
import pytest
import yaml

import reef_operator.options
from reef_operator import names
from reef_operator.connection.client import RESOURCES
from reef_operator.model import IngressSettings, Settings
from reef_operator.options import Options, parse
from reef_operator.reading.forbidden import DEFAULT
from reef_operator.runtime.watch import children_for_applications, unwatched_children

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
EVERYTHING: dict[str, Any] = {
    "commonLabels": {"team": "robotics"},
    "imagePullSecrets": [{"name": "registry"}],
    "templates": {"forbid": ["serviceAccountName", "hostPath"]},
    "operator": {
        "replicas": 2,
        "leaderElection": {"enabled": True},
        "preRunningDeadlineSeconds": 600,
        "extraArgs": ["--dev"],
        "extraEnv": [{"name": "A", "value": "b"}],
        "podAnnotations": {"x": "y"},
        "podLabels": {"x": "y"},
        "priorityClassName": "system-cluster-critical",
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "topologySpreadConstraints": [{"maxSkew": 1}],
    },
    "serviceAccount": {"annotations": {"cloud": "identity"}},
    "networkPolicy": {"enabled": True, "metricsFrom": [{"namespaceSelector": {}}], "restrictEgress": True},
    "ingress": {
        "enabled": True,
        "className": "nginx",
        "annotations": {"size": "16m"},
        "from": [{"namespaceSelector": {}}],
    },
    "monitoring": {
        "serviceMonitor": {"enabled": True, "additionalLabels": {"release": "prometheus"}},
        "podMonitor": {"enabled": True, "additionalLabels": {"release": "prometheus"}},
        "prometheusRule": {"enabled": True, "additionalLabels": {"release": "prometheus"}},
        "dashboards": {"enabled": True, "annotations": {"grafana_folder": "Reef"}},
    },
}
NAMESPACED: dict[str, Any] = {"watch": {"allNamespaces": False, "namespaces": ["team-a", "team-b"]}}
WAYS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "its own namespace": {"watch": {"allNamespaces": False}},
    "two namespaces": NAMESPACED,
    "everything": EVERYTHING,
    "everything in two namespaces": EVERYTHING | NAMESPACED,
    "rights and account of others": {"rbac": {"create": False}, "serviceAccount": {"create": False, "name": "theirs"}},
}
CLUSTER_SCOPED = {"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "Namespace"}
RIGHTS = {
    "rltrainingjobs": "get list watch delete",
    "rltrainingjobs/status": "patch",
    "pods": "get list watch delete",
    "jobs": "get list watch create patch delete",
    "deployments": "get list watch create patch delete",
    "services": "get create delete",
    "configmaps": "get create patch delete",
    "networkpolicies": "get create delete",
    "secrets": "get create delete",
    "events": "create patch",
    "leases": "list watch",  # the canary alone
}
INGRESS_RIGHTS = {"ingresses": "get create delete"}
LEASES = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
LEASE_RIGHTS = [
    {**LEASES, "verbs": ["create"]},
    {**LEASES, "verbs": ["get", "patch"], "resourceNames": ["reef-leader", "reef-canary"]},
]
Render = Callable[..., list[dict[str, Any]]]


def one(objects: list[dict[str, Any]], kind: str, name: str = "") -> dict[str, Any]:
    found = [each for each in objects if each["kind"] == kind and name in ("", each["metadata"]["name"])]
    assert len(found) == 1, [each["metadata"]["name"] for each in found]
    return found[0]


def kinds(objects: list[dict[str, Any]]) -> set[str]:
    return {each["kind"] for each in objects}


def rights(role: dict[str, Any]) -> dict[str, str]:
    return {resource: " ".join(rule["verbs"]) for rule in role["rules"] for resource in rule["resources"]}


@pytest.mark.parametrize("values", WAYS.values(), ids=WAYS)
def test_helm_lint_finds_nothing(chart_folder: Path, values: dict[str, Any]):
    report = helm_python.lint(chart_folder, values, strict=True, namespace="reef-system")
    assert report["errors"] in (None, [])
    assert [message for message in report["messages"] or [] if message["severity"] > 1] == []


def test_lint_knows_the_oldest_kubernetes_too(chart_folder: Path):
    report = helm_python.lint(chart_folder, EVERYTHING, strict=True, kube_version="v1.20.2")
    assert [message for message in report["messages"] or [] if message["severity"] > 1] == []


@pytest.mark.parametrize("values", WAYS.values(), ids=WAYS)
def test_every_object_is_whole(render: Render, values: dict[str, Any]):
    objects = render(**values)
    places = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in objects]
    assert len(places) == len(set(places))
    for each in objects:
        metadata = each["metadata"]
        assert each["apiVersion"]
        assert ("namespace" in metadata) is (each["kind"] not in CLUSTER_SCOPED), places
        assert metadata["labels"]["app.kubernetes.io/managed-by"] == "Helm"
        assert set(values.get("commonLabels", {})) <= set(metadata["labels"])
        assert all(isinstance(value, str) for value in metadata["labels"].values())
        assert all(isinstance(value, str) for value in metadata.get("annotations", {}).values())


def test_cluster_wide_rights_are_these_and_no_more(render: Render):
    objects = render()
    role = one(objects, "ClusterRole", "reef-system-reef")
    assert rights(role) == RIGHTS
    named = [rule for rule in role["rules"] if "resourceNames" in rule]
    assert [(rule["resources"], rule["resourceNames"]) for rule in named] == [(["leases"], ["reef-canary"])]
    assert one(objects, "ClusterRoleBinding")["roleRef"]["name"] == role["metadata"]["name"]
    assert one(objects, "Role")["rules"] == LEASE_RIGHTS
    for binding in (one(objects, "ClusterRoleBinding"), one(objects, "RoleBinding")):
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "reef", "namespace": "reef-system"}]


def test_namespaced_rights_are_the_same_there_and_none_elsewhere(render: Render):
    objects = render(**NAMESPACED)
    assert kinds(objects) & CLUSTER_SCOPED == {"CustomResourceDefinition"}
    roles = {
        (each["metadata"]["namespace"], each["metadata"]["name"]): each for each in objects if each["kind"] == "Role"
    }
    leases = {("reef-system", "reef-leases"), ("team-a", "reef-leases")}
    assert set(roles) == {("team-a", "reef"), ("team-b", "reef")} | leases
    assert rights(roles["team-a", "reef"]) == rights(roles["team-b", "reef"]) == RIGHTS
    bindings = [each for each in objects if each["kind"] == "RoleBinding"]
    assert {(each["metadata"]["namespace"], each["roleRef"]["name"]) for each in bindings} == set(roles)
    assert all(each["subjects"][0]["namespace"] == "reef-system" for each in bindings)


@pytest.mark.parametrize("ways", [{}, NAMESPACED], ids=["cluster", "namespaces"])
def test_rights_on_ingresses_come_with_the_value_that_allows_them(render: Render, ways: dict[str, Any]):
    assert options(render(**ways)).settings.ingress is None
    objects = render(**ways, ingress={"enabled": True, "from": [{"podSelector": {}}]})
    roles = [each for each in objects if each["kind"] in ("Role", "ClusterRole") and "secrets" in rights(each)]
    assert len(roles) == (2 if ways else 1)
    assert all(rights(role) == RIGHTS | INGRESS_RIGHTS for role in roles)
    found = options(objects).settings.ingress
    assert found == IngressSettings(class_name="", annotations={}, controller=({"podSelector": {}},))


def test_ingresses_without_a_controller_are_refused(render: Render):
    with pytest.raises(helm_python.HelmError, match=r"ingress.from is empty: name the pods of the Ingress controller"):
        render(ingress={"enabled": True})


def test_its_own_namespace_is_the_default_of_the_namespaced_way(render: Render):
    roles = [each for each in render(watch={"allNamespaces": False}, namespace="mine") if each["kind"] == "Role"]
    assert {each["metadata"]["namespace"] for each in roles} == {"mine"}
    assert {each["metadata"]["name"] for each in roles} == {"reef", "reef-leases"}


def test_rights_cover_exactly_the_kinds_that_the_operator_asks_for():
    asked = {plural for _, plural in RESOURCES.values()}
    assert {resource.partition("/")[0] for resource in RIGHTS | INGRESS_RIGHTS} == asked


def test_every_right_to_write_is_used_and_every_use_has_its_right():
    sources = "".join(path.read_text() for path in sorted((ROOT / "operator").rglob("*.py")))
    beside = {kind for kind, _ in (*unwatched_children("j"), *children_for_applications("j", ingress=True))}  # orphans
    asked = {
        "create": re.findall(r'(?:\.built\(\s*"[^"]+",|client\.create\()\s*"(\w+)"', sources),
        "patch": re.findall(r'(?:\bPatch|client\.patch)\(\s*"(\w+)"', sources),
        "delete": [*re.findall(r'\bDelete\(\s*"(\w+)"', sources), *beside],
    }
    assert re.findall(r'patch\(\s*"RLTrainingJob"[^)]*', sources)[0].endswith('subresource="status"')
    all_rights = RIGHTS | INGRESS_RIGHTS
    for verb, found in asked.items():
        allowed = {resource.partition("/")[0] for resource, verbs in all_rights.items() if verb in verbs.split()}
        assert {RESOURCES[kind][1] for kind in found} - {"leases"} == allowed, verb
    assert "patch" not in RIGHTS["rltrainingjobs"].split()


def test_people_get_the_rights_that_their_role_implies(render: Render):
    objects = render()
    view = one(objects, "ClusterRole", "reef-system-reef-view")
    assert all(verbs == "get list watch" for verbs in rights(view).values())
    assert "rbac.authorization.k8s.io/aggregate-to-view" in view["metadata"]["labels"]
    edit = one(objects, "ClusterRole", "reef-system-reef-edit")
    assert "rbac.authorization.k8s.io/aggregate-to-view" not in edit["metadata"]["labels"]
    assert "rltrainingjobs/status" not in rights(edit)


def test_the_pod_is_accepted_at_the_restricted_level(render: Render):
    spec = one(render(), "Deployment")["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    assert all("emptyDir" in volume for volume in spec["volumes"])
    (container,) = spec["containers"]
    security = container["securityContext"]
    assert security["allowPrivilegeEscalation"] is False
    assert security["readOnlyRootFilesystem"] is True
    assert security["capabilities"] == {"drop": ["ALL"]}


def test_one_operator_that_is_never_doubled(render: Render):
    objects = render()
    spec = one(objects, "Deployment")["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    assert "PodDisruptionBudget" not in kinds(objects), "it would block the drain of the node"
    with pytest.raises(helm_python.HelmError, match=r"leaderElection\.enabled=true"):
        render(operator={"replicas": 2})
    several = render(operator={"replicas": 2, "leaderElection": {"enabled": True}})
    assert one(several, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


def test_ports_probes_and_service_agree(render: Render):
    objects = render()
    deployment = one(objects, "Deployment")
    pod = deployment["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"metrics": 8081, "health": 8082}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"] == {"path": "/healthz", "port": "health"}
        assert container[probe]["periodSeconds"] > 0
    service = one(objects, "Service")["spec"]
    assert service["selector"] == deployment["spec"]["selector"]["matchLabels"]
    assert service["selector"].items() <= pod["metadata"]["labels"].items()
    assert service["ports"] == [{"name": "metrics", "port": 8081, "targetPort": "metrics", "protocol": "TCP"}]
    assert pod["metadata"]["annotations"]["prometheus.io/port"] == "8081"
    assert names.MANAGED_BY_LABEL in pod["metadata"]["labels"]
    assert pod["metadata"]["labels"][names.MANAGED_BY_LABEL] != names.COMMON_LABELS[names.MANAGED_BY_LABEL]


def options(objects: list[dict[str, Any]], arguments: tuple[str, ...] = ()) -> Options:
    """What the operator understands of its container."""
    (container,) = one(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    variables = {variable["name"]: variable.get("value", "from-the-pod") for variable in container["env"]}
    accepted = set(re.findall(r'of\.\w+\("(\w+)"', inspect.getsource(reef_operator.options))) | {"NAMESPACES"}
    given = {name.removeprefix("REEF_OPERATOR_") for name in variables if name.startswith("REEF_OPERATOR_")}
    assert given <= accepted, "a variable that the operator does not know"
    return parse(container.get("args", []), variables)


def test_a_digest_goes_before_a_tag(render: Render):
    operator, trainer = (f"sha256:{digit * 64}" for digit in "12")
    objects = render(image={"tag": "7", "digest": operator}, trainerImage={"repository": "r/t", "digest": trainer})
    (container,) = one(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"reef-operator@{operator}"
    assert options(objects).settings.trainer_image == f"r/t@{trainer}"


def test_the_operator_understands_its_settings(render: Render):
    image = {"repository": "r/t", "tag": "7", "pullPolicy": "Never"}
    few = options(render(**NAMESPACED, trainerImage=image))
    assert few.namespaces == ("team-a", "team-b")
    assert (few.settings.trainer_image, few.settings.image_pull_policy) == ("r/t:7", "Never")
    assert few.settings.default_pre_running_deadline_s is None
    assert few.leader_election is False
    assert (few.metrics_port, few.health_port) == (8081, 8082)
    everything = options(render(**EVERYTHING))
    assert everything.namespaces == ()
    assert everything.settings == Settings(
        trainer_image=f"reef-trainer:{VERSION}",
        image_pull_policy="IfNotPresent",
        cluster_domain="cluster.local",
        linger_seconds=30,
        default_pre_running_deadline_s=600,
        forbidden=("serviceAccountName", "hostPath"),
        metrics_from=({"namespaceSelector": {}},),
        operator_namespace="from-the-pod",
        ingress=IngressSettings(
            class_name="nginx", annotations={"size": "16m"}, controller=({"namespaceSelector": {}},)
        ),
    )
    assert few.settings.forbidden == DEFAULT
    assert options(render(templates={"forbid": []})).settings.forbidden == ()
    assert everything.leader_election is True
    assert everything.dev is True  # from extraArgs


def test_the_leases_that_it_may_use_are_those_that_it_uses(render: Render):
    for values in WAYS.values():
        objects = render(**values)
        found = options(objects)
        roles = [
            each for each in objects if each["kind"] == "Role" and each["metadata"]["name"] == f"{found.name}-leases"
        ]
        if values.get("rbac", {}).get("create", True):
            here = dataclasses.replace(found, own_namespace="reef-system")
            assert {role["metadata"]["namespace"] for role in roles} == {"reef-system", here.canary_namespace}
            assert all(role["rules"] == LEASE_RIGHTS for role in roles)


def test_its_leases_come_and_go_with_the_release(render: Render):
    for values in WAYS.values():
        objects = render(**values)
        found = dataclasses.replace(options(objects), own_namespace="reef-system")
        wanted = {(found.canary_namespace, f"{found.name}-canary")}
        wanted |= {(found.own_namespace, f"{found.name}-leader")} if found.leader_election else set()
        leases = [each for each in objects if each["kind"] == "Lease"]
        assert {(each["metadata"]["namespace"], each["metadata"]["name"]) for each in leases} == wanted
        assert all("spec" not in each for each in leases), "an upgrade would take it from the operator"


def test_what_a_person_adds_does_not_break_the_selectors(render: Render):
    objects = render(operator={"podLabels": {"app.kubernetes.io/name": "other", "x": "y"}})
    labels = one(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert labels["x"] == "y"
    assert one(objects, "Deployment")["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_monitors_find_operator_and_heads(render: Render):
    assert not kinds(render()) & {"ServiceMonitor", "PodMonitor", "PrometheusRule"}
    objects = render(**EVERYTHING)
    service = one(objects, "ServiceMonitor")
    assert service["spec"]["selector"]["matchLabels"].items() <= one(objects, "Service")["metadata"]["labels"].items()
    pods = one(objects, "PodMonitor")["spec"]
    assert pods["selector"]["matchLabels"].items() <= names.head_labels("any").items()
    assert pods["selector"]["matchLabels"].items() - names.worker_labels("any", "pool").items()
    assert pods["namespaceSelector"] == {"any": True}
    (endpoint,) = pods["podMetricsEndpoints"]
    assert service["spec"]["endpoints"][0]["honorLabels"] is True
    assert endpoint["honorLabels"] is False
    assert {each["targetLabel"]: each["sourceLabels"] for each in endpoint["relabelings"]} == {
        "namespace": ["__meta_kubernetes_namespace"],
        "pod": ["__meta_kubernetes_pod_name"],
        "job_name": ["__meta_kubernetes_pod_label_" + names.JOB_LABEL.replace(".", "_").replace("/", "_")],
    }
    assert pods["sampleLimit"] > 0
    for kind in ("ServiceMonitor", "PodMonitor", "PrometheusRule"):
        assert one(objects, kind)["metadata"]["labels"]["release"] == "prometheus"
    few = one(render(**EVERYTHING | NAMESPACED), "PodMonitor")["spec"]
    assert few["namespaceSelector"] == {"matchNames": ["team-a", "team-b"]}


def test_the_rule_object_holds_the_rules_of_the_file(render: Render, chart_folder: Path):
    alive = "reef_operator_resync_timestamp_seconds"
    text = (chart_folder / "rules" / "reef.yaml").read_text()
    assert alive in text
    ours = text.replace(alive, alive + '{namespace="reef-system"}')  # a release beside others watches over its own
    groups = yaml.safe_load(ours)["groups"]
    assert one(render(**EVERYTHING), "PrometheusRule")["spec"]["groups"] == groups
    url = "https://example.com/runbooks"
    rule = {"enabled": True, "runbookUrl": url, "disabled": ["ReefJobGpuIdle"]}
    rendered = one(render(monitoring={"prometheusRule": rule}), "PrometheusRule")["spec"]["groups"]
    rules = [each for group in rendered for each in group["rules"]]
    assert {each["alert"] for each in rules} == {each["alert"] for group in groups for each in group["rules"]} - {
        "ReefJobGpuIdle"
    }
    for each in rules:
        assert each["annotations"]["runbook_url"] == f"{url}#{each['alert'].lower()}"
    with pytest.raises(helm_python.HelmError, match="ReefNothing, which is no alert; there are ReefJobStuckPending"):
        render(monitoring={"prometheusRule": {"enabled": True, "disabled": ["ReefNothing"]}})


def test_every_dashboard_is_one_config_map(render: Render, chart_folder: Path):
    assert "ConfigMap" not in kinds(render())
    maps = [each for each in render(**EVERYTHING) if each["kind"] == "ConfigMap"]
    boards = {path.name: json.loads(path.read_text()) for path in (chart_folder / "dashboards").glob("*.json")}
    assert {name for each in maps for name in each["data"]} == {f"reef-{name}" for name in boards}
    for each in maps:
        assert each["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert each["metadata"]["annotations"] == {"grafana_folder": "Reef"}
        ((name, text),) = each["data"].items()
        assert json.loads(text) == boards[name.removeprefix("reef-")]


def test_the_network_policy_lets_metrics_and_probes_in(render: Render):
    spec = one(render(), "NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress"]
    assert [rule["ports"][0]["port"] for rule in spec["ingress"]] == [8082, 8081]
    assert "from" not in spec["ingress"][0], "probes come from the node"
    prometheus = [{"namespaceSelector": {"matchLabels": {names.NAMESPACE_LABEL: "monitoring"}}}]
    assert spec["ingress"][1]["from"] == prometheus == list(options(render()).settings.metrics_from)
    for everybody in ({"enabled": False}, {"metricsFrom": []}):
        objects = render(networkPolicy=everybody)
        assert options(objects).settings.metrics_from == ()
        policies = [each["spec"] for each in objects if each["kind"] == "NetworkPolicy"]
        assert not any("from" in rule for policy in policies for rule in policy["ingress"])
    operator = one(render(operator={"podLabels": {"app.kubernetes.io/part-of": "x"}}), "Deployment")
    assert names.OPERATOR_LABELS.items() <= operator["spec"]["template"]["metadata"]["labels"].items()
    spec = one(render(**EVERYTHING), "NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert spec["egress"][-1]["to"][0]["podSelector"]["matchLabels"].items() <= names.head_labels("any").items()


def test_notes_say_where_it_looks_and_what_becomes_of_the_definition(files: Callable[..., dict[str, str]]):
    notes = files(**NAMESPACED)["reef/templates/NOTES.txt"]
    assert "watches team-a, team-b for" in notes
    assert "To remove both:\n\n  kubectl delete customresourcedefinition" in notes
    (job,) = [notes.partition("<<'JOB'\n")[2].partition("JOB")[0]]
    assert yaml.safe_load(job)["metadata"]["namespace"] == "team-a"
    assert "kubernetes.io/metadata.name" in notes and "it gets no data" in notes
    assert "kubectl label namespace" in files(kubeVersion="v1.20.2")["reef/templates/NOTES.txt"]
    assert "Every pod of the cluster can read" in files(networkPolicy={"metricsFrom": []})["reef/templates/NOTES.txt"]
    assert "watches all namespaces" in files()["reef/templates/NOTES.txt"]
    others = files(crds={"install": False})["reef/templates/NOTES.txt"]
    assert "yourself:\n\n  kubectl apply --server-side --force-conflicts -f charts/reef/definitions/" in others
    assert "removes it and all jobs" in files(crds={"keep": False})["reef/templates/NOTES.txt"]


def test_notes_warn_of_an_account_for_all_namespaces_that_jobs_may_be_beside(files: Callable[..., dict[str, str]]):
    warning = "a job there can run under it"
    assert warning in files(namespace="default")["reef/templates/NOTES.txt"]
    assert warning not in files()["reef/templates/NOTES.txt"]


def test_the_definition_is_a_copy_of_the_generated_one(chart_folder: Path):
    (copy,) = (chart_folder / "definitions").iterdir()
    assert copy.read_bytes() == (ROOT / "crds" / copy.name).read_bytes(), "run `make schema`"


def test_the_definition_is_installed_as_it_was_generated(render: Render):
    generated = yaml.safe_load((ROOT / "crds" / "rltrainingjobs.reef.dev.yaml").read_text())
    found = one(render(kubeVersion="1.25"), "CustomResourceDefinition")
    assert found["spec"] == generated["spec"]
    assert found["metadata"]["name"] == generated["metadata"]["name"]
    assert found["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert "annotations" not in one(render(crds={"keep": False}), "CustomResourceDefinition")["metadata"]
    assert "CustomResourceDefinition" not in kinds(render(crds={"install": False}))


def test_old_servers_get_it_without_what_they_refuse(render: Render):
    def without(value: Any) -> Any:
        if isinstance(value, list):
            return [without(inner) for inner in value]
        if not isinstance(value, dict):
            return value
        dropped = {"x-kubernetes-validations"} | ({"enum"} if None in (value.get("enum") or []) else set())
        return {key: without(inner) for key, inner in value.items() if key not in dropped}

    generated = yaml.safe_load((ROOT / "crds" / "rltrainingjobs.reef.dev.yaml").read_text())
    assert without(generated) != generated
    found = one(render(kubeVersion="v1.24.17"), "CustomResourceDefinition")
    assert found["spec"] == without(generated["spec"])
    assert found["spec"]["names"] == generated["spec"]["names"]


def test_old_servers_get_the_disruption_budget_that_they_know(render: Render):
    for version, api in (("v1.20.2", "policy/v1beta1"), ("v1.21.0-gke.1", "policy/v1"), ("1.34", "policy/v1")):
        assert one(render(**EVERYTHING, kubeVersion=version), "PodDisruptionBudget")["apiVersion"] == api


def test_versions_agree(chart_folder: Path):
    chart = yaml.safe_load((chart_folder / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)


def test_long_release_names_are_cut(render: Render):
    for each in render(name="r" * 53, **EVERYTHING):
        if each["kind"] not in CLUSTER_SCOPED:
            assert len(each["metadata"]["name"]) <= 253
    assert len(one(render(name="r" * 53), "Service")["metadata"]["name"]) <= 63
