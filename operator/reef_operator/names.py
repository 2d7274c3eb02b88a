"""What the objects of a job are called, their labels and annotations, and how to find its pods."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from reef.api import JobSpec, NodePool
from reef.api.job import API_VERSION, KIND

NAME_LABEL = "app.kubernetes.io/name"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
JOB_LABEL = "reef.dev/job"
COMPONENT_LABEL = "reef.dev/component"
NAMESPACE_LABEL = "kubernetes.io/metadata.name"  # on namespaces, by Kubernetes itself
OPERATOR_LABELS = {"app.kubernetes.io/part-of": "reef", "app.kubernetes.io/component": "operator"}  # by the chart
POOL_LABEL = "reef.dev/pool"
HEAD, WORKER = "head", "worker"

COMMON_LABELS = {NAME_LABEL: "reef", MANAGED_BY_LABEL: "reef-operator"}
MANAGED_SELECTOR = ",".join(f"{key}={value}" for key, value in COMMON_LABELS.items())  # objects of every job
POD_SELECTOR = f"{MANAGED_SELECTOR},{COMPONENT_LABEL}"  # pods of every job
POOL_ANNOTATION = "reef.dev/pool-hash"  # on a Deployment: what its pods were made from
HEAD_ANNOTATION = "reef.dev/head-hash"  # on the head's batch Job, likewise
FINAL_CODES_ANNOTATION = "reef.dev/no-retry-exit-codes"  # on the head's batch Job: those it was made with
ATTEMPTS_ANNOTATION = "reef.dev/attempts-before"  # on the head's batch Job: heads of earlier ones

CONTAINER = "reef"
GCS_PORT = 6379
METRICS_PORT = 8080
TOKEN_KEY = "token"  # noqa: S105 - the key, not the token
REFUSAL = "reef.dev/refusal"  # a key of our making beside spec: why the document is too large to be looked at
SHORTENED = "reef.dev/shortened"  # likewise: the job has ended, and its document is not kept
DOCUMENT_KEY = "job.json"
_SCALE = {"replicas", "min_replicas", "rollout_workers"}  # fields of a pool that may change without new pods


def document(job: str) -> str:
    """Return the name of the ConfigMap with the resolved document."""
    return f"{job}-job"


def token(job: str) -> str:
    """Return the name of the Secret with the Ray token."""
    return f"{job}-ray-token"


def head(job: str) -> str:
    """Return the name of the head's batch Job and of its Service."""
    return f"{job}-{HEAD}"


def pool(job: str, name: str) -> str:
    """Return the name of a node pool's Deployment: `<job>-<pool>`, and more where that could be another job's.

    Job `a` with pool `b-c` and job `a-b` with pool `c` may stand side by side. What follows the last hyphen is a pool
    without one, so a pool with one gets a hash.
    """
    if "-" not in name:
        return f"{job}-{name}"
    return f"{job}-{name}-{hashlib.sha256(f'{job}/{name}'.encode()).hexdigest()[:5]}"


def network_policy(job: str) -> str:
    """Return the name of the NetworkPolicy."""
    return job


def labels(job: str) -> dict[str, str]:
    """Return the labels of every object of a job."""
    return COMMON_LABELS | {JOB_LABEL: job}


def head_labels(job: str) -> dict[str, str]:
    """Return the labels of the head's pods."""
    return labels(job) | {COMPONENT_LABEL: HEAD}


def worker_labels(job: str, pool: str) -> dict[str, str]:
    """Return the labels of a pool's pods."""
    return labels(job) | {COMPONENT_LABEL: WORKER, POOL_LABEL: pool}


def selector(labels: Mapping[str, str]) -> str:
    """Return labels as the API server's label selectors are written."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def owner_reference(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reference by which an object goes when its RLTrainingJob goes."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": False,
    }


def pool_hash(spec: JobSpec, pool: NodePool) -> str:
    """Return a hash that changes when the pods of a pool must be replaced: the value of `POOL_ANNOTATION`.

    It is taken from the document, not from the generated template: a newer operator leaves running pods alone.
    """
    made_from = pool.model_dump(mode="json", by_alias=True, exclude=_SCALE, exclude_defaults=True)
    return _hash([made_from, spec.image, spec.image_pull_policy, spec.image_pull_secrets])


def head_hash(spec: JobSpec) -> str:
    """Return a hash that changes when the document asks for another head: the value of `HEAD_ANNOTATION`."""
    made_from = spec.head.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return _hash([made_from, final_codes(spec), spec.fault_tolerance.termination_grace_period_seconds])


def final_codes(spec: JobSpec) -> list[int]:
    """Return the head's exit codes that end the job, sorted: the values of `FINAL_CODES_ANNOTATION`."""
    return sorted(set(spec.fault_tolerance.no_retry_exit_codes))


def _hash(made_from: list[Any]) -> str:
    return hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()[:16]
