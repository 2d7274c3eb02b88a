"""The NetworkPolicy that keeps other pods out of the job's Ray cluster."""

from __future__ import annotations

from typing import Any

from reef_operator import names
from reef_operator.builders.parts import Blueprint


def network_policy(blueprint: Blueprint) -> dict[str, Any]:
    """Return the policy: the job's pods reach each other, everyone else only the head's metrics and progress."""
    own_pods = {"matchLabels": {names.JOB_LABEL: blueprint.name}}
    spec = {
        "podSelector": own_pods,
        "policyTypes": ["Ingress"],
        "ingress": [
            {"from": [{"podSelector": own_pods}]},
            {"ports": [{"port": names.METRICS_PORT, "protocol": "TCP"}]},
        ],
    }
    return blueprint.built("networking.k8s.io/v1", "NetworkPolicy", names.network_policy(blueprint.name), spec=spec)
