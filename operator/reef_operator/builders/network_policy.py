"""The NetworkPolicy that keeps other pods out of the job's Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reef.api.external import POLICY_PORT
from reef_operator import names
from reef_operator.builders.parts import Blueprint


def network_policy(blueprint: Blueprint) -> dict[str, Any]:
    """Return the policy.

    The job's pods reach each other; the operator and Prometheus reach metrics and progress; the applications that the
    document names, and the Ingress controller if the job has an Ingress, reach the policy server.
    """
    own_pods = {"matchLabels": {names.JOB_LABEL: blueprint.name}}
    spec = {
        "podSelector": own_pods,
        "policyTypes": ["Ingress"],
        "ingress": [
            {"from": [{"podSelector": own_pods}]},
            {"ports": _ports(names.METRICS_PORT), **_readers(blueprint)},
            *_applications(blueprint),
        ],
    }
    return blueprint.built("networking.k8s.io/v1", "NetworkPolicy", names.network_policy(blueprint.name), spec=spec)


def _ports(port: int) -> list[dict[str, Any]]:
    return [{"port": port, "protocol": "TCP"}]


def _readers(blueprint: Blueprint) -> dict[str, Any]:
    """Return which pods may read metrics; an empty rule allows every pod."""
    settings = blueprint.settings
    if not settings.metrics_from:
        return {}
    here = {"matchLabels": {names.NAMESPACE_LABEL: settings.operator_namespace}}
    operator = {
        "namespaceSelector": here if blueprint.server.names_namespaces else {},
        "podSelector": {"matchLabels": names.OPERATOR_LABELS},
    }
    return {"from": [operator, *settings.metrics_from]}


def _applications(blueprint: Blueprint) -> Iterator[dict[str, Any]]:
    external, ingress = blueprint.job.spec.external_input, blueprint.settings.ingress
    if external is None:
        return
    clients = [client.model_dump(mode="json", by_alias=True, exclude_defaults=True) for client in external.from_]
    controller = ingress.controller if ingress and external.ingress else ()
    # A rule without peers would let in every pod.
    if peers := [*clients, *controller]:
        yield {"from": peers, "ports": _ports(POLICY_PORT)}
