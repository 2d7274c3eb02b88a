"""What every object of a job has in common, and what the small ones hold."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from job_objects import CLAIM, EXTERNAL, TOKEN, blueprint, pool
from kubernetes import client

from reef_operator import names
from reef_operator.builders.config_map import config_map
from reef_operator.builders.head_job import head_job
from reef_operator.builders.network_policy import network_policy
from reef_operator.builders.parts import Blueprint
from reef_operator.builders.pool_deployment import pool_deployment
from reef_operator.builders.secret import secret
from reef_operator.builders.service import head_address, policy_service, service
from reef_operator.model import Server, Settings

BUILDERS: dict[str, Callable[[Blueprint], dict[str, Any]]] = {
    "V1ConfigMap": config_map,
    "V1Secret": lambda blueprint: secret(blueprint, TOKEN),
    "V1Service": service,
    "V1NetworkPolicy": network_policy,
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
    assert document["spec"]["workers"][0]["replicas"] == 5 and document["metadata"]["uid"] == "job-uid"


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
