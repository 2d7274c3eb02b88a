"""The pod template of head and workers: secure defaults, with the user's template merged over them."""

from __future__ import annotations

from typing import Any

from reef.api.pods import Gpu, PodSettings
from reef_operator import names
from reef_operator.builders.merging import merged
from reef_operator.builders.parts import Blueprint

USER = 1000  # uid and gid in the image
JOB_FOLDER = "/etc/reef"


def pod_template(
    blueprint: Blueprint,
    settings: PodSettings,
    *,
    labels: dict[str, str],
    annotations: dict[str, str] | None = None,
    pod: dict[str, Any],
    container: dict[str, Any],
) -> dict[str, Any]:
    """Return a PodTemplateSpec.

    Args:
        blueprint: the job.
        settings: the document's settings for these pods.
        labels: of the pods; the user's template cannot change them, because selectors depend on them.
        annotations: of the pods; the user's template may override them.
        pod: additional fields of the pod; `volumes` are appended to the common ones.
        container: additional fields of the container `reef`; `env` and `volumeMounts` are appended.
    """
    spec: dict[str, Any] = {
        "automountServiceAccountToken": False,
        # In large namespaces, service links make the environment too large to start a process.
        "enableServiceLinks": False,
        "securityContext": _pod_security(),
        **_placement(settings),
        **{key: value for key, value in pod.items() if key != "volumes"},
        "containers": [_container(blueprint, settings, container)],
        "volumes": _volumes(blueprint) + pod.get("volumes", []),
    }
    if secrets := blueprint.job.spec.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in secrets]
    metadata = {"labels": labels} | ({"annotations": annotations} if annotations else {})
    template: dict[str, Any] = merged({"metadata": metadata, "spec": spec}, settings.template)
    return merged(template, {"metadata": {"labels": labels}})  # type: ignore[no-any-return]


def _pod_security() -> dict[str, Any]:
    return {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        # A volume with a million files is not walked at every start.
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _volumes(blueprint: Blueprint) -> list[dict[str, Any]]:
    return [
        {"name": "tmp", "emptyDir": {}},
        # Ray's object store; the default /dev/shm of the container runtime has only 64 MiB.
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
        {"name": "job", "configMap": {"name": names.document(blueprint.name)}},
    ]


def _placement(settings: PodSettings) -> dict[str, Any]:
    """Return where the pods may run; settings that are not given are omitted."""
    tolerations = [toleration.model_dump(by_alias=True, exclude_none=True) for toleration in settings.tolerations]
    selector = dict(settings.node_selector)
    if gpu := settings.gpu:
        tolerations += _gpu_tolerations(gpu)
        if gpu.product:
            selector[f"{_gpu_vendor(gpu)}gpu.product"] = gpu.product
    placement = {
        "nodeSelector": selector,
        "tolerations": tolerations,
        "affinity": settings.affinity,
        "priorityClassName": settings.priority_class_name,
        "schedulerName": settings.scheduler_name,
    }
    return {key: value for key, value in placement.items() if value}


def _gpu_vendor(gpu: Gpu) -> str:
    """Return the part of the resource name before the slash, with the slash: "nvidia.com/"."""
    return gpu.resource_name[: gpu.resource_name.rfind("/") + 1]


def _gpu_tolerations(gpu: Gpu) -> list[dict[str, Any]]:
    """Return tolerations for the taints of GPU nodes; nodes with MIG slices have the taint of whole GPUs."""
    keys = dict.fromkeys((f"{_gpu_vendor(gpu)}gpu", gpu.resource_name))
    return [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in keys]


def _container(blueprint: Blueprint, settings: PodSettings, container: dict[str, Any]) -> dict[str, Any]:
    mounts = [
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - the pod's own volume
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108
        {"name": "job", "mountPath": JOB_FOLDER, "readOnly": True},
    ]
    result: dict[str, Any] = {
        "name": names.CONTAINER,
        "image": blueprint.job.spec.image,
        "resources": _resources(settings),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "terminationMessagePath": "/dev/termination-log",
        # If the process crashes before it writes the message, Kubernetes shows the end of its log.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **container,
        "env": _environment(blueprint, settings) + container.get("env", []),
        "volumeMounts": mounts + container.get("volumeMounts", []),
    }
    if blueprint.job.spec.image_pull_policy:
        result["imagePullPolicy"] = blueprint.job.spec.image_pull_policy
    return result


def _resources(settings: PodSettings) -> dict[str, Any]:
    requests, limits = dict(settings.resources.requests), dict(settings.resources.limits)
    if "cpu" not in requests and "cpu" not in limits:
        requests["cpu"] = "1"
    if settings.gpu:
        limits[settings.gpu.resource_name] = str(settings.gpu.count)
    return {key: value for key, value in (("requests", requests), ("limits", limits)) if value}


def _environment(blueprint: Blueprint, settings: PodSettings) -> list[dict[str, Any]]:
    token = {"name": names.token(blueprint.name), "key": names.TOKEN_KEY}
    return [
        variable("REEF_JOB_NAME", blueprint.name),
        variable("REEF_NAMESPACE", blueprint.namespace),
        variable("REEF_JOB_UID", blueprint.uid),
        variable("REEF_JOB_FILE", f"{JOB_FOLDER}/{names.DOCUMENT_KEY}"),
        variable("REEF_CPUS", f"{settings.cpus:g}"),
        variable("REEF_GPUS", str(settings.gpus)),
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        variable("HOME", "/tmp"),  # noqa: S108 - the only folder that can be written to
        variable("RAY_AUTH_MODE", "token"),
        {"name": "RAY_AUTH_TOKEN", "valueFrom": {"secretKeyRef": token}},
        variable("RAY_USAGE_STATS_ENABLED", "0"),
        # Ray's memory monitor would kill processes without a trace in the pod's status.
        variable("RAY_memory_monitor_refresh_ms", "0"),
    ]


def from_secret(name: str) -> list[dict[str, Any]]:
    """Return the entry of `envFrom` that makes every key of a Secret an environment variable."""
    return [{"secretRef": {"name": name}}]


def variable(name: str, value: str) -> dict[str, Any]:
    """Return an environment variable."""
    return {"name": name, "value": value}
