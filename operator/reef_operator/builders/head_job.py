"""The batch Job of the head: one pod with the Ray head and the driver of the training, retried by Kubernetes."""

from __future__ import annotations

from typing import Any

from reef.api.external import POLICY_PORT, TOKEN_VARIABLE
from reef_operator import names
from reef_operator.builders.parts import Blueprint
from reef_operator.builders.pod_template import from_secret, pod_template, variable

STORAGE_FOLDER = "/var/lib/reef"


def head_job(blueprint: Blueprint) -> dict[str, Any]:
    """Return the head's batch Job."""
    spec: dict[str, Any] = {
        "backoffLimit": blueprint.job.spec.fault_tolerance.backoff_limit,
        "completions": 1,
        "parallelism": 1,
        "template": _template(blueprint),
    }
    if blueprint.server.pod_failure_policy:
        spec["podFailurePolicy"] = {"rules": _failure_rules(blueprint)}
    job = blueprint.built("batch/v1", "Job", names.head(blueprint.name), spec=spec)
    attempts = (blueprint.owner.get("status") or {}).get("attempts") or 0
    job["metadata"]["annotations"] = {
        names.HEAD_ANNOTATION: names.head_hash(blueprint.job.spec),
        names.FINAL_CODES_ANNOTATION: ",".join(map(str, names.final_codes(blueprint.job.spec))),
        names.ATTEMPTS_ANNOTATION: str(attempts),
    }
    return job


def _failure_rules(blueprint: Blueprint) -> list[dict[str, Any]]:
    """Return the rules for failures: eviction and preemption cost no attempt; a wrong job ends at once."""
    rules: list[dict[str, Any]] = [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    ]
    if codes := names.final_codes(blueprint.job.spec):
        on_codes = {"containerName": names.CONTAINER, "operator": "In", "values": codes}
        rules.append({"action": "FailJob", "onExitCodes": on_codes})
    return rules


def _template(blueprint: Blueprint) -> dict[str, Any]:
    spec = blueprint.job.spec
    return pod_template(
        blueprint,
        spec.head,
        labels=names.head_labels(blueprint.name),
        annotations={"prometheus.io/scrape": "true", "prometheus.io/port": str(names.METRICS_PORT)},
        pod={
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": spec.fault_tolerance.termination_grace_period_seconds,
            "volumes": [_storage_volume(blueprint)],
        },
        container={
            "command": ["python", "-m", "reef.job.head"],
            "ports": [
                {"name": "gcs", "containerPort": names.GCS_PORT, "protocol": "TCP"},
                {"name": "metrics", "containerPort": names.METRICS_PORT, "protocol": "TCP"},
                *_policy_port(blueprint),
            ],
            "env": [
                variable("REEF_STORAGE_PATH", STORAGE_FOLDER),
                variable("REEF_LINGER_SECONDS", str(blueprint.settings.linger_seconds)),
                *_policy_token(blueprint),
            ],
            "volumeMounts": [_storage_mount(blueprint)],
            **_credentials(blueprint),
            **_probes(),
        },
    )


def _policy_port(blueprint: Blueprint) -> list[dict[str, Any]]:
    if blueprint.job.spec.external_input is None:
        return []
    return [{"name": "policy", "containerPort": POLICY_PORT, "protocol": "TCP"}]


def _policy_token(blueprint: Blueprint) -> list[dict[str, Any]]:
    external = blueprint.job.spec.external_input
    if external is None:
        return []
    return [{"name": TOKEN_VARIABLE, "valueFrom": {"secretKeyRef": external.token_secret_ref.model_dump()}}]


def _probes() -> dict[str, Any]:
    """Return the probes: the head has five minutes to start, and is replaced when it is silent for a minute."""
    health = {"httpGet": {"path": "/healthz", "port": names.METRICS_PORT}, "timeoutSeconds": 5}
    return {
        "startupProbe": health | {"periodSeconds": 2, "failureThreshold": 150},
        "readinessProbe": health | {"periodSeconds": 5, "failureThreshold": 3},
        "livenessProbe": health | {"periodSeconds": 10, "failureThreshold": 6},
    }


def _storage_volume(blueprint: Blueprint) -> dict[str, Any]:
    storage = blueprint.job.spec.checkpoint.storage
    if storage and (claim := storage.persistent_volume_claim):
        return {"name": "storage", "persistentVolumeClaim": {"claimName": claim.claim_name}}
    return {"name": "storage", "emptyDir": {}}


def _storage_mount(blueprint: Blueprint) -> dict[str, Any]:
    mount = {"name": "storage", "mountPath": STORAGE_FOLDER}
    storage = blueprint.job.spec.checkpoint.storage
    if storage and (claim := storage.persistent_volume_claim):
        mount["subPath"] = claim.sub_path or blueprint.name
    return mount


def _credentials(blueprint: Blueprint) -> dict[str, Any]:
    storage = blueprint.job.spec.checkpoint.storage
    if storage and storage.secret_ref:
        return {"envFrom": from_secret(storage.secret_ref.name)}
    return {}
