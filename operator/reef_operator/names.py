"""Names, labels and annotations of a job's objects, and label selectors for them."""

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
NAMESPACE_LABEL = "kubernetes.io/metadata.name"  # set on namespaces by Kubernetes
OPERATOR_LABELS = {"app.kubernetes.io/part-of": "reef", "app.kubernetes.io/component": "operator"}  # set by the chart
POOL_LABEL = "reef.dev/pool"
HEAD, WORKER = "head", "worker"

COMMON_LABELS = {NAME_LABEL: "reef", MANAGED_BY_LABEL: "reef-operator"}
MANAGED_SELECTOR = ",".join(f"{key}={value}" for key, value in COMMON_LABELS.items())  # the objects of every job
POD_SELECTOR = f"{MANAGED_SELECTOR},{COMPONENT_LABEL}"  # the pods of every job
POOL_ANNOTATION = "reef.dev/pool-hash"  # on a Deployment: hash of the settings of its pods
HEAD_ANNOTATION = "reef.dev/head-hash"  # on the head's batch Job: hash of the settings of the head
FINAL_CODES_ANNOTATION = "reef.dev/no-retry-exit-codes"  # on the head's batch Job: its exit codes without retry
ATTEMPTS_ANNOTATION = "reef.dev/attempts-before"  # on the head's batch Job: number of earlier heads

CONTAINER = "reef"
GCS_PORT = 6379
METRICS_PORT = 8080
TOKEN_KEY = "token"  # noqa: S105 - the key, not the token
# A key that the operator adds beside spec: why the document is too large to be processed.
REFUSAL = "reef.dev/refusal"
# Likewise: the job has ended, and its document is not cached.
SHORTENED = "reef.dev/shortened"
DOCUMENT_KEY = "job.json"
# These fields of a pool may change without new pods; but rollout_workers not from or to 0, which its pods are told.
_SCALE = {"replicas", "min_replicas", "rollout_workers"}


def document(job: str) -> str:
    """Return the name of the ConfigMap with the resolved document."""
    return f"{job}-job"


def token(job: str) -> str:
    """Return the name of the Secret with the Ray token."""
    return f"{job}-ray-token"


def head(job: str) -> str:
    """Return the name of the head's batch Job and of its Service."""
    return f"{job}-{HEAD}"


def policy_server(job: str) -> str:
    """Return the name of the Service and of the Ingress of the head's policy server."""
    return f"{job}-policy"


def pool(job: str, name: str) -> str:
    """Return the name of a node pool's Deployment: `<job>-<pool>`, with a hash where another job could have that name.

    Job `a` with pool `b-c` and job `a-b` with pool `c` may exist at the same time. The text after the last hyphen is a
    pool name without hyphens; a pool name with a hyphen gets a hash.
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
    """Return labels in the API server's syntax for label selectors."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def owner_reference(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the owner reference: Kubernetes deletes the object together with its RLTrainingJob."""
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

    The hash is computed from the document, not from the generated template, so a newer operator does not restart pods.
    """
    made_from = pool.model_dump(mode="json", by_alias=True, exclude=_SCALE, exclude_defaults=True)
    secret = [spec.worker_secret] if spec.worker_secret else []
    for_learners = [] if pool.rollout_workers else ["no rollout workers"]
    return _hash([made_from, spec.image, spec.image_pull_policy, spec.image_pull_secrets, *secret, *for_learners])


def head_hash(spec: JobSpec) -> str:
    """Return a hash that changes when the document's settings for the head change: the value of `HEAD_ANNOTATION`."""
    made_from = spec.head.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return _hash([made_from, final_codes(spec), spec.fault_tolerance.termination_grace_period_seconds])


def final_codes(spec: JobSpec) -> list[int]:
    """Return the head's exit codes without retry, sorted: the values of `FINAL_CODES_ANNOTATION`."""
    return sorted(set(spec.fault_tolerance.no_retry_exit_codes))


def _hash(made_from: list[Any]) -> str:
    return hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()[:16]
