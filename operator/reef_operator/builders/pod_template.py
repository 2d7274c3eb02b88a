"""What head and workers have in common: the pod template, safe by default, with the user's template merged over it."""

from __future__ import annotations

from typing import Any

from reef.api.pods import Gpu, PodSettings
from reef_operator import names
from reef_operator.builders.merging import merged
from reef_operator.builders.parts import Blueprint

USER = 1000  # the image's user and group
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
        settings: what the document says of these pods.
        labels: of the pods; the user's template cannot change them, as selectors rely on them.
        annotations: of the pods, unless the user's template says otherwise.
        pod: fields of the pod in addition to the common ones; `volumes` are appended.
        container: fields of the container `reef` likewise; `env` and `volumeMounts` are appended.
    """
    spec: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,  # in big namespaces they make the environment too long to start a process
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
        "fsGroupChangePolicy": "OnRootMismatch",  # a volume with a million files is not walked at every start
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _volumes(blueprint: Blueprint) -> list[dict[str, Any]]:
    return [
        {"name": "tmp", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},  # Ray's object store; the runtime's own has 64 MiB
        {"name": "job", "configMap": {"name": names.document(blueprint.name)}},
    ]


def _placement(settings: PodSettings) -> dict[str, Any]:
    """Return where the pods may run; what is not said is left out."""
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
    """Return the part of the resource's name up to the slash: "nvidia.com/"."""
    return gpu.resource_name[: gpu.resource_name.rfind("/") + 1]


def _gpu_tolerations(gpu: Gpu) -> list[dict[str, Any]]:
    """Return tolerations of the taints on GPU nodes; those with MIG slices carry the taint of whole GPUs."""
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
        "terminationMessagePolicy": "FallbackToLogsOnError",  # a crash before the message is written shows its log
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
        variable("RAY_memory_monitor_refresh_ms", "0"),  # Ray would kill without a trace in the pod's status
    ]


def variable(name: str, value: str) -> dict[str, Any]:
    """Return an environment variable."""
    return {"name": name, "value": value}
