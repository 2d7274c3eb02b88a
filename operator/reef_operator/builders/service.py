"""The Services of the head: workers find it by one, applications its policy server by the other."""

from __future__ import annotations

from typing import Any

from reef.api.external import POLICY_PORT
from reef_operator import names
from reef_operator.builders.parts import Blueprint


def service(blueprint: Blueprint) -> dict[str, Any]:
    """Return the headless Service: its name is the head's address, even before the head is ready."""
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        **_of_head(blueprint, gcs=names.GCS_PORT, metrics=names.METRICS_PORT),
    }
    return blueprint.built("v1", "Service", names.head(blueprint.name), spec=spec)


def policy_service(blueprint: Blueprint) -> dict[str, Any]:
    """Return the Service for applications: its address stays when the head is replaced."""
    spec = _of_head(blueprint, policy=POLICY_PORT)
    return blueprint.built("v1", "Service", names.policy_server(blueprint.name), spec=spec)


def _of_head(blueprint: Blueprint, **ports: int) -> dict[str, Any]:
    return {
        "selector": {names.JOB_LABEL: blueprint.name, names.COMPONENT_LABEL: names.HEAD},
        "ports": [{"name": name, "port": port, "targetPort": port, "protocol": "TCP"} for name, port in ports.items()],
    }


def head_address(blueprint: Blueprint) -> str:
    """Return host and port of the Ray head; the host includes the cluster domain, so no DNS search path is needed."""
    host = f"{names.head(blueprint.name)}.{blueprint.namespace}.svc.{blueprint.settings.cluster_domain}"
    return f"{host}:{names.GCS_PORT}"
