"""The job document `RLTrainingJob`: models, validation, schemas; free of torch and ray, as the operator imports it."""

from __future__ import annotations

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
