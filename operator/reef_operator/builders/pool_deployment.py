"""The Deployment of a node pool: Kubernetes replaces lost worker pods even while the operator is down."""

from __future__ import annotations

from typing import Any

from reef.api import NodePool
from reef_operator import names
from reef_operator.builders.parts import Blueprint
from reef_operator.builders.pod_template import from_secret, pod_template, variable
from reef_operator.builders.service import head_address

JOINED_FILE = "/tmp/reef/joined"  # noqa: S108 - on the pod's own volume; it exists while the worker has joined a head


def pool_deployment(blueprint: Blueprint, pool: NodePool) -> dict[str, Any]:
    """Return the pool's Deployment."""
    labels = names.worker_labels(blueprint.name, pool.name)
    deployment = blueprint.built(
        "apps/v1",
        "Deployment",
        names.pool(blueprint.name, pool.name),
        spec={
            "replicas": pool.replicas,
            "revisionHistoryLimit": 0,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": {key: labels[key] for key in (names.JOB_LABEL, names.POOL_LABEL)}},
            "template": _template(blueprint, pool, labels),
        },
    )
    deployment["metadata"]["labels"] = labels
    deployment["metadata"]["annotations"] = {names.POOL_ANNOTATION: names.pool_hash(blueprint.job.spec, pool)}
    return deployment


def _template(blueprint: Blueprint, pool: NodePool, labels: dict[str, str]) -> dict[str, Any]:
    secret = blueprint.job.spec.worker_secret
    return pod_template(
        blueprint,
        pool,
        labels=labels,
        pod={"restartPolicy": "Always", "terminationGracePeriodSeconds": 30},
        container={
            "command": ["python", "-m", "reef.job.worker"],
            "env": [
                variable("REEF_HEAD_ADDRESS", head_address(blueprint)),
                variable("REEF_POOL", pool.name),
                *([] if pool.rollout_workers else [variable("REEF_TAKES_WORKERS", "0")]),
            ],
            **({"envFrom": from_secret(secret)} if secret else {}),
            "readinessProbe": {
                "exec": {"command": ["test", "-e", JOINED_FILE]},
                "periodSeconds": 3,
                "timeoutSeconds": 5,
                "failureThreshold": 1,
            },
        },
    )
