"""The pods of a job: what the head and every node pool ask of the cluster, and what a user's code finds in them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from reef.api.fields import (
    MAX_KEYS,
    Count,
    DocumentModel,
    FreeMapping,
    Name,
    ObjectName,
    PositiveCount,
    Quantity,
    ResourceName,
    Seconds,
    Text,
    quantity_value,
    server_rules,
)

HEAD_NAME = "head"  # the head's objects are called <job>-head, so that no pool may take this name

TRAINER_CONTAINER = "reef"
# nvidia.com/gpu, its slices (mig-1g.5gb, gpu.shared), amd.com/gpu, gpu.intel.com/i915; not amounts such as gpu-memory
_GPU = re.compile(r"[^/]+/(gpu(\.shared|-(?!.*(mem|core|percent)).+)?|mig-.+)|gpu\.intel\.com/(i915|xe)")


def is_gpu(resource: str) -> bool:
    """Whether a resource of pods counts whole GPUs, or slices that a process uses like one."""
    return _GPU.fullmatch(resource) is not None


class Gpu(DocumentModel):
    """GPUs of one pod, in short: becomes a resource limit, a toleration and a node selector."""

    count: PositiveCount = Field(description="GPUs (or MIG slices) of each pod.")
    resource_name: ResourceName = Field(
        default="nvidia.com/gpu",
        description="Resource that the device plugin offers, for example nvidia.com/mig-1g.5gb for a MIG slice.",
    )
    product: Text | None = Field(
        default=None,
        description="GPU model to run on: the value of the node label <vendor>/gpu.product, as NVIDIA-A100-SXM4-80GB.",
    )


class Resources(DocumentModel):
    """CPU, memory and other resources of one pod, as Kubernetes writes them."""

    requests: dict[str, Quantity] = Field(
        default_factory=dict,
        description="What the scheduler reserves for the pod, for example cpu: '2' and memory: 4Gi.",
    )
    limits: dict[str, Quantity] = Field(default_factory=dict, description="What the pod may use at most.")


class Toleration(DocumentModel):
    """A node taint that the pod puts up with."""

    key: Text | None = Field(default=None, description="Taint key; none with operator Exists tolerates every taint.")
    operator: Literal["Equal", "Exists"] = Field(
        default="Equal", description="How the taint's value is compared: Equal or Exists."
    )
    value: str | None = Field(default=None, description="Taint value, for operator Equal.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None, description="Taint effect that is tolerated; none means all of them."
    )
    toleration_seconds: Seconds | None = Field(
        default=None, description="How long a NoExecute taint is tolerated, in seconds; none means for ever."
    )


class PodSettings(DocumentModel):
    """What the head and the pools have in common: resources and where the pods may run."""

    resources: Resources = Field(
        default_factory=Resources,
        description="CPU, memory and other resources of each pod; one CPU when none is named. GPUs among them count as "
        "those of `gpu`.",
    )
    gpu: Gpu | None = Field(default=None, description="GPUs of each pod; none for pods without GPUs.")
    node_selector: dict[str, str] = Field(
        default_factory=dict, description="Labels that a node must carry for these pods to run on it."
    )
    tolerations: list[Toleration] = Field(default_factory=list, description="Node taints that these pods put up with.")
    affinity: FreeMapping = Field(
        default_factory=dict, description="Kubernetes affinity of these pods, exactly as in a pod's specification."
    )
    priority_class_name: ObjectName | None = Field(default=None, description="PriorityClass of these pods.")
    scheduler_name: Text | None = Field(
        default=None, description="Scheduler that places these pods; none means the cluster's own."
    )
    template: FreeMapping = Field(
        default_factory=dict,
        description="PodTemplateSpec that is merged over the generated pods: volumes, environment variables, "
        "annotations, side cars. The container named 'reef' is the trainer.",
    )

    @model_validator(mode="after")
    def _one_place_for_gpus(self) -> Self:
        if self.gpu and (twice := {**self.resources.requests, **self.resources.limits}.get(self.gpu.resource_name)):
            raise ValueError(
                f"{self.gpu.resource_name} is in gpu, {self.gpu.count}, and in resources, {twice}: remove it from "
                "resources"
            )
        if self.gpu and self._in_template.get(self.gpu.resource_name, self.gpu.count) != self.gpu.count:
            raise ValueError(
                f"{self.gpu.resource_name} is in gpu, {self.gpu.count}, and in the template's container "
                f"{TRAINER_CONTAINER}, {self._in_template[self.gpu.resource_name]:g}: remove it from one of them"
            )
        return self

    @property
    def _in_template(self) -> dict[str, float]:
        """Resources of the trainer's container in the template; 0 for one that it removes."""
        spec = self.template.get("spec")
        containers = spec.get("containers") if isinstance(spec, Mapping) else None
        for container in containers if isinstance(containers, list) else ():
            if isinstance(container, Mapping) and container.get("name") == TRAINER_CONTAINER:
                return _amounts(container.get("resources"))
        return {}

    @property
    def cpus(self) -> float:
        """CPUs of one pod: its limit, else its request, else 1."""
        return quantity_value(self.resources.limits.get("cpu") or self.resources.requests.get("cpu") or "1")

    @property
    def gpus(self) -> int:
        """GPUs of one pod, wherever they are asked for: in `gpu`, `resources` or the template."""
        amounts = _amounts({"requests": self.resources.requests, "limits": self.resources.limits})
        named = {self.gpu.resource_name: float(self.gpu.count)} if self.gpu else {}
        counted = {name: amount for name, amount in (amounts | self._in_template).items() if is_gpu(name)}
        return int(sum((counted | named).values()))


def _amounts(resources: Any) -> dict[str, float]:
    """Requests and limits as numbers; the template is free text, and what is no number in it is left out."""
    found: dict[str, float] = {}
    for part in ("requests", "limits"):
        asked = resources.get(part) if isinstance(resources, Mapping) else None
        for name, quantity in asked.items() if isinstance(asked, Mapping) else ():
            try:
                found[str(name)] = 0.0 if quantity is None else quantity_value(str(quantity))
            except (ValueError, KeyError):  # Kubernetes will say so
                continue
    return found


class Head(PodSettings):
    """The head pod: Ray's head, the driver of the training and, without learner workers, the learner."""


_NAME_MESSAGE = f"name '{HEAD_NAME}' belongs to the head pod: give the pool another name"


class NodePool(PodSettings):
    """A group of equal worker pods."""

    model_config = server_rules(
        (
            "!has(self.minReplicas) || self.minReplicas <= (has(self.replicas) ? self.replicas : 1)",
            "minReplicas is larger than replicas (1 when not given): lower it or raise replicas",
        ),
        (f"self.name != '{HEAD_NAME}'", _NAME_MESSAGE),
    )

    name: Name = Field(description="Name of the pool, unique in the job; part of its pods' names.")
    replicas: Count = Field(default=1, description="Pods of the pool; may be changed while the job runs.")
    min_replicas: Count | None = Field(
        default=None,
        description="Training goes on while at least this many pods are ready; 1 when not given (0 for an empty pool).",
    )
    rollout_workers: Count = Field(
        default=1,
        description="Rollout workers for which each pod of the pool counts when config.num_rollout_workers is not "
        "given; 0 for a pool that only holds learners.",
    )

    @model_validator(mode="after")
    def _sensible(self) -> Self:
        if self.name == HEAD_NAME:
            raise ValueError(_NAME_MESSAGE)
        if self.min_replicas is not None and self.min_replicas > self.replicas:
            raise ValueError(
                f"minReplicas {self.min_replicas} is larger than replicas {self.replicas}: lower it or raise replicas"
            )
        return self

    def least(self, wanted: int) -> int:
        """Of `wanted` pods as many as training needs to go on."""
        return min(1 if self.min_replicas is None else self.min_replicas, wanted)


def _variables(variables: dict[str, str]) -> dict[str, str]:
    for name, value in variables.items():
        if not name or "=" in name or "\0" in name + value:
            raise ValueError(f"{name!r}: {value!r} can be no environment variable: leave out '=' and NUL, and name it")
    return variables


def _local(folder: str) -> str:
    if "://" in folder:
        raise ValueError(
            f"{folder!r} is not available: the head makes the environment too, and Ray would fetch this for the "
            "workers only. Put the code into spec.image, or mount it with spec.head.template, and name its folder"
        )
    return folder


Folder = Annotated[Text, AfterValidator(_local)]


class RuntimeEnv(DocumentModel):
    """Ray's runtime environment for user code, with Ray's own keys."""

    model_config = ConfigDict(
        alias_generator=None,
        # Other keys reach the operator, which says why there is no pip.
        json_schema_extra={"x-kubernetes-preserve-unknown-fields": True, "maxProperties": MAX_KEYS},
    )

    env_vars: Annotated[dict[str, str], AfterValidator(_variables)] = Field(
        default_factory=dict, description="Environment variables of head and workers."
    )
    working_dir: Folder | None = Field(
        default=None,
        description="Folder of the head pod that Ray copies to the workers; modules in it can be imported.",
    )
    py_modules: Annotated[list[Folder], Field(max_length=64)] = Field(
        default_factory=list,
        description="Python packages, as folders of the head pod, that Ray copies to the workers.",
    )

    @model_validator(mode="before")
    @classmethod
    def _without_packages(cls, given: Any) -> Any:
        for key in ("pip", "uv", "conda"):
            if isinstance(given, Mapping) and key in given:
                raise ValueError(
                    f"{key} is not available: the head makes the environment too, and Ray would install these packages "
                    "for the workers only. Build an image FROM the trainer's with them, and name it in spec.image"
                )
        return given

    @property
    def folders(self) -> dict[str, str]:
        """Folders that must be there, by the key that names each."""
        modules = {f"py_modules[{index}]": folder for index, folder in enumerate(self.py_modules)}
        return ({"working_dir": self.working_dir} if self.working_dir else {}) | modules

    @property
    def import_path(self) -> list[str]:
        """Where Python finds the code: in the working folder, and the packages beside each other in their parents."""
        return [*([self.working_dir] if self.working_dir else []), *(str(PurePath(m).parent) for m in self.py_modules)]
