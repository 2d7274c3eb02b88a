"""The Service by which workers find the head."""

from __future__ import annotations

from typing import Any

from reef_operator import names
from reef_operator.builders.parts import Blueprint


def service(blueprint: Blueprint) -> dict[str, Any]:
    """Return the headless Service: its name is the head's address, even before the head is ready."""
    ports = [("gcs", names.GCS_PORT), ("metrics", names.METRICS_PORT)]
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {names.JOB_LABEL: blueprint.name, names.COMPONENT_LABEL: names.HEAD},
        "ports": [{"name": name, "port": port, "targetPort": port, "protocol": "TCP"} for name, port in ports],
    }
    return blueprint.built("v1", "Service", names.head(blueprint.name), spec=spec)


def head_address(blueprint: Blueprint) -> str:
    """Return host and port of the Ray head; the host includes the cluster domain, so no DNS search path is needed."""
    host = f"{names.head(blueprint.name)}.{blueprint.namespace}.svc.{blueprint.settings.cluster_domain}"
    return f"{host}:{names.GCS_PORT}"
