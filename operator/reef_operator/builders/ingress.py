"""The Ingress of a policy server, for applications outside of the cluster."""

from __future__ import annotations

from typing import Any

from reef.api.external import POLICY_PORT, PolicyIngress
from reef_operator import names
from reef_operator.builders.parts import Blueprint
from reef_operator.model import IngressSettings


def ingress(blueprint: Blueprint, asked: PolicyIngress, settings: IngressSettings) -> dict[str, Any]:
    """Return the Ingress that the document asked for, with the class and annotations of the installation."""
    service = {"name": names.policy_server(blueprint.name), "port": {"number": POLICY_PORT}}
    path = {"path": "/", "pathType": "Prefix", "backend": {"service": service}}
    tls = {"hosts": [asked.host]} | ({"secretName": asked.tls_secret_name} if asked.tls_secret_name else {})
    spec = {"rules": [{"host": asked.host, "http": {"paths": [path]}}], "tls": [tls]}
    if settings.class_name:
        spec["ingressClassName"] = settings.class_name
    made = blueprint.built("networking.k8s.io/v1", "Ingress", names.policy_server(blueprint.name), spec=spec)
    if settings.annotations:
        made["metadata"]["annotations"] = dict(settings.annotations)
    return made
