"""What every object of a job has in common, and what the small ones hold."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from job_objects import CLAIM, CONTROLLER, EXTERNAL, FROM_OUTSIDE, INGRESSES, TOKEN, blueprint, pool
from kubernetes import client

from reef.api.external import PolicyIngress
from reef_operator import names
from reef_operator.builders.config_map import config_map
from reef_operator.builders.head_job import head_job
from reef_operator.builders.ingress import ingress
from reef_operator.builders.network_policy import network_policy
from reef_operator.builders.parts import Blueprint
from reef_operator.builders.pool_deployment import pool_deployment
from reef_operator.builders.secret import secret
from reef_operator.builders.service import head_address, policy_service, service
from reef_operator.model import IngressSettings, Server, Settings


def built_ingress(blueprint: Blueprint) -> dict[str, Any]:
    """The Ingress of the document; without one, an Ingress in which every field is set."""
    external = blueprint.job.spec.external_input
    everything = PolicyIngress(host="game.example.com", tls_secret_name="game-tls")
    asked = external.ingress if external and external.ingress else everything
    settings = blueprint.settings.ingress or IngressSettings(class_name="c", annotations={"a": "b"}, controller=())
    return ingress(blueprint, asked, settings)


BUILDERS: dict[str, Callable[[Blueprint], dict[str, Any]]] = {
    "V1ConfigMap": config_map,
    "V1Secret": lambda blueprint: secret(blueprint, TOKEN),
    "V1Service": service,
    "V1NetworkPolicy": network_policy,
    "V1Ingress": built_ingress,
    "V1Job": head_job,
    "V1Deployment": lambda blueprint: pool_deployment(blueprint, blueprint.job.spec.workers[0]),
}
EVERYTHING: dict[str, Any] = {
    "image": "own:1",
    "imagePullPolicy": "Never",
    "imagePullSecrets": ["registry"],
    "checkpoint": {"storage": {"uri": "s3://b/f", "secretRef": {"name": "s3"}}},
    "head": {"gpu": {"count": 1, "product": "A100"}, "priorityClassName": "high"},
    "externalInput": {
        "tokenSecretRef": {"name": "game", "key": "secret"},
        "from": [{"namespaceSelector": {}, "podSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}],
    },
    "workers": [
        pool(
            gpu={"count": 2, "resourceName": "nvidia.com/mig-1g.5gb", "product": "A100"},
            resources={"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
            nodeSelector={"zone": "a"},
            tolerations=[{"key": "spot", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}],
            affinity={"nodeAffinity": {}},
            priorityClassName="low",
            schedulerName="volcano",
            template={"metadata": {"annotations": {"a": "b"}}, "spec": {"hostAliases": [{"ip": "1.2.3.4"}]}},
        )
    ],
}
NEW, OLD = Server(minor=33), Server(minor=20)


@pytest.mark.parametrize("model", BUILDERS)
def test_every_object_is_owned_labelled_and_in_its_namespace(model: str) -> None:
    metadata = BUILDERS[model](blueprint())["metadata"]
    assert metadata["namespace"] == "training"
    assert metadata["labels"].items() >= names.labels("pole").items()
    assert metadata["ownerReferences"] == [
        {
            "apiVersion": "reef.dev/v1",
            "kind": "RLTrainingJob",
            "name": "pole",
            "uid": "job-uid",
            "controller": True,
            "blockOwnerDeletion": False,
        }
    ]


@pytest.mark.parametrize("model", BUILDERS)
@pytest.mark.parametrize("spec", [{}, {"checkpoint": None}, EVERYTHING], ids=["plain", "no storage", "everything"])
@pytest.mark.parametrize("server", [NEW, OLD], ids=["new", "old"])
def test_every_field_is_one_that_kubernetes_knows(model: str, spec: dict[str, Any], server: Server) -> None:
    """Read into the client library's models and written again: what they do not know would be gone."""

    built = BUILDERS[model](blueprint(server=server, **spec))
    api = client.ApiClient()
    assert api.sanitize_for_serialization(api.deserialize(json.dumps(built), model, "application/json")) == built


def test_the_longest_names_fit() -> None:
    longest = blueprint(workers=[pool("p" * 52)])
    for build in BUILDERS.values():
        assert len(build(longest)["metadata"]["name"]) <= 63
    assert len(names.pool("pole", "p" * 52)) == 57, "a Deployment's pods take six more characters in their host name"


def test_the_document_is_what_the_head_reads() -> None:
    document = json.loads(config_map(blueprint(replicas=5))["data"]["job.json"])
    assert document["spec"]["replicas"] == 5 and document["metadata"]["uid"] == "job-uid"


def test_the_secret_holds_the_token() -> None:
    assert base64.b64decode(secret(blueprint(), TOKEN)["data"]["token"]).decode() == TOKEN
    with pytest.raises(AssertionError, match="guessed"):
        secret(blueprint(), "")


def test_the_service_gives_the_head_a_name_before_it_is_ready() -> None:
    spec = service(blueprint())["spec"]
    assert spec["clusterIP"] == "None" and spec["publishNotReadyAddresses"] is True
    assert {port["name"]: port["port"] for port in spec["ports"]} == {"gcs": 6379, "metrics": 8080}
    labels = head_job(blueprint())["spec"]["template"]["metadata"]["labels"]
    assert spec["selector"].items() <= labels.items()
    assert "reef.dev/pool" not in labels
    settings = Settings(cluster_domain="example.org")
    assert head_address(blueprint(settings=settings)) == "pole-head.training.svc.example.org:6379"


def test_the_service_for_applications_leads_to_the_policy_server_of_the_head() -> None:
    made = policy_service(blueprint(externalInput=EXTERNAL))
    assert made["metadata"]["name"] == "pole-policy"
    assert made["metadata"]["ownerReferences"] == service(blueprint())["metadata"]["ownerReferences"]
    assert made["spec"]["ports"] == [{"name": "policy", "port": 9900, "targetPort": 9900, "protocol": "TCP"}]
    assert "publishNotReadyAddresses" not in made["spec"] and "clusterIP" not in made["spec"]
    template = head_job(blueprint(externalInput=EXTERNAL))["spec"]["template"]
    assert made["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    (container,) = template["spec"]["containers"]
    assert {"name": "policy", "containerPort": 9900, "protocol": "TCP"} in container["ports"]


def test_the_token_of_applications_is_the_heads_alone() -> None:
    given = blueprint(externalInput=EXTERNAL)
    (container,) = head_job(given)["spec"]["template"]["spec"]["containers"]
    secret = {"secretKeyRef": {"name": "game", "key": "token"}}
    assert {"name": "REEF_POLICY_TOKEN", "valueFrom": secret} in container["env"]
    for other in (pool_deployment(given, given.job.spec.workers[0]), head_job(blueprint())):
        assert "REEF_POLICY_TOKEN" not in json.dumps(other) and "9900" not in json.dumps(other)


def test_the_network_policy_lets_in_the_applications_that_are_named_and_no_others() -> None:
    peers = [*EXTERNAL["from"], {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "robot"}}}]
    own, metrics, applications = network_policy(blueprint(externalInput=EXTERNAL | {"from": peers}))["spec"]["ingress"]
    assert [own, metrics] == network_policy(blueprint())["spec"]["ingress"]
    assert applications == {"from": peers, "ports": [{"port": 9900, "protocol": "TCP"}]}


def test_the_ingress_leads_from_its_host_to_the_service_for_applications_by_tls_alone() -> None:
    tls = {"host": "game.example.com", "tlsSecretName": "game-tls"}
    settings = IngressSettings(class_name="nginx", annotations={"size": "16m"}, controller=(CONTROLLER,))
    given = blueprint(externalInput=FROM_OUTSIDE | {"ingress": tls}, settings=Settings(ingress=settings))
    made, service = built_ingress(given), policy_service(given)
    assert made["metadata"]["annotations"] == {"size": "16m"}
    assert made["spec"]["ingressClassName"] == "nginx"
    assert made["spec"]["tls"] == [{"hosts": ["game.example.com"], "secretName": "game-tls"}]
    (rule,) = made["spec"]["rules"]
    (path,) = rule["http"]["paths"]
    assert (rule["host"], path["path"], path["pathType"]) == ("game.example.com", "/", "Prefix")
    port = service["spec"]["ports"][0]["port"]
    assert path["backend"] == {"service": {"name": service["metadata"]["name"], "port": {"number": port}}}


def test_an_ingress_has_the_clusters_class_and_the_controllers_certificate_unless_others_are_named() -> None:
    made = built_ingress(blueprint(externalInput=FROM_OUTSIDE, settings=INGRESSES))
    assert "annotations" not in made["metadata"] and "ingressClassName" not in made["spec"]
    assert made["spec"]["tls"] == [{"hosts": ["game.example.com"]}]


def test_the_network_policy_lets_in_the_ingress_controller_only_where_it_leads_to_the_job() -> None:
    def peers(external: dict[str, Any], settings: Settings = INGRESSES) -> Any:
        rules = network_policy(blueprint(externalInput=external, settings=settings))["spec"]["ingress"][2:]
        assert all(rule["ports"] == [{"port": 9900, "protocol": "TCP"}] for rule in rules)
        return [rule["from"] for rule in rules]

    assert peers(FROM_OUTSIDE) == [[CONTROLLER]]
    assert peers(FROM_OUTSIDE | {"from": EXTERNAL["from"]}) == [[*EXTERNAL["from"], CONTROLLER]]
    assert peers(EXTERNAL) == [EXTERNAL["from"]]


def test_no_pod_is_let_in_when_ingresses_are_not_allowed_any_more() -> None:
    """A rule without peers would let in all; the document was valid when the job was created."""
    given = replace(blueprint(externalInput=FROM_OUTSIDE, settings=INGRESSES), settings=Settings())
    assert len(network_policy(given)["spec"]["ingress"]) == 2


def test_the_network_policy_lets_in_the_jobs_own_pods_and_metrics_from_anywhere() -> None:
    spec = network_policy(blueprint())["spec"]
    own = {"matchLabels": {"reef.dev/job": "pole"}}
    assert spec == {
        "podSelector": own,
        "policyTypes": ["Ingress"],
        "ingress": [{"from": [{"podSelector": own}]}, {"ports": [{"port": 8080, "protocol": "TCP"}]}],
    }


@pytest.mark.parametrize(
    ("server", "namespace"), [(NEW, {"matchLabels": {"kubernetes.io/metadata.name": "reef-system"}}), (OLD, {})]
)
def test_metrics_can_be_kept_for_operator_and_prometheus(server: Server, namespace: dict[str, Any]) -> None:
    prometheus = {"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}
    settings = Settings(metrics_from=(prometheus,), operator_namespace="reef-system")
    own, metrics = network_policy(blueprint(settings=settings, server=server))["spec"]["ingress"]
    assert own == {"from": [{"podSelector": {"matchLabels": {"reef.dev/job": "pole"}}}]}
    assert metrics["ports"] == [{"port": 8080, "protocol": "TCP"}]
    operator = {"app.kubernetes.io/part-of": "reef", "app.kubernetes.io/component": "operator"}
    assert metrics["from"] == [{"namespaceSelector": namespace, "podSelector": {"matchLabels": operator}}, prometheus]


def test_storage_credentials_and_claims_are_the_heads_alone() -> None:
    for spec in ({"checkpoint": CLAIM}, EVERYTHING):
        workers = json.dumps(pool_deployment(blueprint(**spec), blueprint(**spec).job.spec.workers[0]))
        assert "envFrom" not in workers and "persistentVolumeClaim" not in workers and "REEF_STORAGE" not in workers


STORED = {"checkpoint": {"storage": {"uri": "s3://b/f", "secretRef": {"name": "s3"}}}}
IN_STORE = {"output": "s3://b/episodes"}
SWEEP = {"parameters": {"lr": {"grid": [0.1, 0.2]}}}


@pytest.mark.parametrize(
    ("spec", "given"),
    [
        ({"config": IN_STORE}, True),
        ({"config": {"output": "az://container/episodes"}}, True),
        ({"config": {"evaluation_config": IN_STORE}}, True),
        ({"config": {"output": "/data/episodes"}}, False),
        ({"config": {"output": "file:///data"}}, False),
        ({"config": {"input_": ["episodes", "s3://b/episodes"]}}, True),
        ({"config": {"input_": {"gs://b/episodes": 1.0}}}, True),
        ({"config": {"input_": "minari://D4RL/door/human-v2"}}, False),
        ({"config": {"env_config": {"levels": "s3://b/levels"}}}, False),
        ({"tune": {"parameters": {"input_": {"choice": ["s3://b/good", "s3://b/all"]}}}}, True),
        ({"tune": SWEEP}, False),
        ({"config": IN_STORE, "checkpoint": CLAIM}, False),
        ({"config": IN_STORE, "checkpoint": {"storage": {"uri": "s3://b/f"}}}, False),
    ],
)
def test_workers_get_the_stores_credentials_only_if_they_use_a_store(spec: dict[str, Any], given: bool) -> None:
    plan = blueprint(**STORED | spec)
    (container,) = pool_deployment(plan, plan.job.spec.workers[0])["spec"]["template"]["spec"]["containers"]
    assert container.get("envFrom", []) == [{"secretRef": {"name": "s3"}}] * given
