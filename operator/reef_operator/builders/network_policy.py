"""The NetworkPolicy that keeps other pods out of the job's Ray cluster."""

from __future__ import annotations

from typing import Any

from reef_operator import names
from reef_operator.builders.parts import Blueprint


def network_policy(blueprint: Blueprint) -> dict[str, Any]:
    """Return the policy: the job's pods reach each other; the operator and Prometheus reach metrics and progress."""
    own_pods = {"matchLabels": {names.JOB_LABEL: blueprint.name}}
    spec = {
        "podSelector": own_pods,
        "policyTypes": ["Ingress"],
        "ingress": [
            {"from": [{"podSelector": own_pods}]},
            {"ports": [{"port": names.METRICS_PORT, "protocol": "TCP"}], **_readers(blueprint)},
        ],
    }
    return blueprint.built("networking.k8s.io/v1", "NetworkPolicy", names.network_policy(blueprint.name), spec=spec)


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
