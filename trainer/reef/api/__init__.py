"""The job document `RLTrainingJob`: models, validation, schemas; free of torch and ray, as the operator imports it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reef.api.job import RLTrainingJob
    from reef.api.loading import job_from_document, load_job
    from reef.api.pods import Gpu, Head, NodePool
    from reef.api.spec import JobSpec
    from reef.api.status import JobStatus
    from reef.api.storage import Checkpoint, Storage

__all__ = [
    "Checkpoint",
    "Gpu",
    "Head",
    "JobSpec",
    "JobStatus",
    "NodePool",
    "RLTrainingJob",
    "Storage",
    "job_from_document",
    "load_job",
]

# Workers import reef.api.keys and must not pay for the models: names resolve on first use (PEP 562).
_HOMES = {
    "Checkpoint": "storage",
    "Gpu": "pods",
    "Head": "pods",
    "JobSpec": "spec",
    "JobStatus": "status",
    "NodePool": "pods",
    "RLTrainingJob": "job",
    "Storage": "storage",
    "job_from_document": "loading",
    "load_job": "loading",
}

if not TYPE_CHECKING:  # where every name would be one of these

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'reef.api' has no attribute {name!r}")
        return getattr(import_module(f"reef.api.{_HOMES[name]}"), name)
