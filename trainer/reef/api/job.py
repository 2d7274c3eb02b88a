"""`RLTrainingJob`: the one document a person writes."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import ConfigDict, Field, model_validator

from reef.api.fields import DocumentModel, Name, server_rules
from reef.api.pods import HEAD_NAME
from reef.api.spec import JobSpec
from reef.api.status import JobStatus

GROUP, VERSION, KIND = "reef.dev", "v1", "RLTrainingJob"
API_VERSION = f"{GROUP}/{VERSION}"
MAX_CHILD_NAME = 57  # a pod's host name has 63 characters, of which its controller takes six ("-x7k2p")

MAX_JOB_NAME = MAX_CHILD_NAME - len(HEAD_NAME) - 1


class Metadata(DocumentModel):
    """The part of Kubernetes' object metadata that Reef reads; the rest passes through."""

    model_config = ConfigDict(extra="allow")

    name: Name = Field(description="Name of the job, unique in its namespace.")
    namespace: str | None = Field(default=None, description="Namespace of the job.")
    labels: dict[str, str] = Field(default_factory=dict, description="Labels of the job.")
    annotations: dict[str, str] = Field(default_factory=dict, description="Annotations of the job.")


class RLTrainingJob(DocumentModel):
    """A reinforcement-learning training: algorithm, environment, stop criterion and the pods it runs on."""

    model_config = server_rules(
        (
            f"size(self.metadata.name) <= {MAX_JOB_NAME}",
            f"metadata.name is too long: shorten it to {MAX_JOB_NAME} characters",
        ),
        (
            "!has(self.spec.workers) || self.spec.workers.all("
            f"pool, size(self.metadata.name) + size(pool.name) < {MAX_CHILD_NAME})",
            f"metadata.name and a pool's name are too long: shorten them to {MAX_CHILD_NAME - 1} characters together",
        ),
    )

    api_version: Literal["reef.dev/v1"] = Field(default="reef.dev/v1", description="Version of the document's form.")
    kind: Literal["RLTrainingJob"] = Field(default="RLTrainingJob", description="Kind of the document.")
    metadata: Metadata = Field(description="Name, labels and annotations.")
    spec: JobSpec = Field(
        description="What is trained, until when, on which pods, and what happens when something fails."
    )
    status: JobStatus | None = Field(default=None, description="What the operator reports.")

    @model_validator(mode="after")
    def _child_names_fit(self) -> Self:
        longest = max((pool.name for pool in self.spec.workers), key=len, default=HEAD_NAME)
        child = f"{self.metadata.name}-{max(longest, HEAD_NAME, key=len)}"
        if len(child) > MAX_CHILD_NAME:
            which = "the job's name" if child.endswith(f"-{HEAD_NAME}") else "the job's name or the pool's"
            raise ValueError(
                f"metadata.name: the pods' name {child!r} has {len(child)} characters, at most {MAX_CHILD_NAME} fit: "
                f"shorten {which} by {len(child) - MAX_CHILD_NAME}"
            )
        return self
