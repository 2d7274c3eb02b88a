"""When checkpoints are written and where they are kept."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from reef.api.fields import STORAGE_URI, Count, DocumentModel, ObjectName, Text, server_rules


class VolumeClaim(DocumentModel):
    """An existing PersistentVolumeClaim in the job's namespace."""

    claim_name: ObjectName = Field(description="Name of the PersistentVolumeClaim.")
    sub_path: Text | None = Field(
        default=None, description="Folder inside the volume; none means a folder with the job's name."
    )


class SecretReference(DocumentModel):
    """A Secret in the job's namespace."""

    name: ObjectName = Field(
        description="Name of the Secret; its keys become environment variables of the head, and of the workers if "
        "config.output or config.input_ is in an object store."
    )


class Storage(DocumentModel):
    """Where results and checkpoints are kept: a volume or an object store, one of the two."""

    model_config = server_rules(
        (
            "has(self.persistentVolumeClaim) != has(self.uri)",
            "give exactly one of persistentVolumeClaim and uri: add one, or remove the other",
        ),
        (
            "!has(self.secretRef) || has(self.uri)",
            "secretRef belongs to uri, and a persistentVolumeClaim needs no credentials: remove it",
        ),
    )

    persistent_volume_claim: VolumeClaim | None = Field(
        default=None, description="Volume that holds results and checkpoints."
    )
    uri: Annotated[str, StringConstraints(pattern=STORAGE_URI, max_length=1024)] | None = Field(
        default=None,
        description="Object store and folder that hold results and checkpoints, for example s3://bucket/folder.",
    )
    secret_ref: SecretReference | None = Field(default=None, description="Secret with the object store's credentials.")

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        claim = self.persistent_volume_claim
        if claim and self.uri:
            raise ValueError(
                f"give exactly one of persistentVolumeClaim and uri: there are {claim.claim_name!r} and {self.uri!r}, "
                "remove one of them"
            )
        if not claim and not self.uri:
            raise ValueError(
                "give exactly one of persistentVolumeClaim and uri: there is neither, add one or remove storage"
            )
        if self.secret_ref and not self.uri:
            raise ValueError(
                f"secretRef {self.secret_ref.name!r} belongs to uri: a persistentVolumeClaim needs no credentials, "
                "remove secretRef"
            )
        return self


class Checkpoint(DocumentModel):
    """When checkpoints are written, how many are kept, and where."""

    frequency: Count = Field(
        default=10, description="Training iterations between two checkpoints; 0 writes none on the way."
    )
    at_end: bool = Field(default=True, description="Whether a checkpoint is written when training ends or is stopped.")
    keep: Count = Field(
        default=3,
        description="How many checkpoints are kept: the best by scoreAttribute, and always the newest; 0 keeps all.",
    )
    score_attribute: Text = Field(
        default="training_iteration",
        description="Result field that ranks checkpoints, the largest best, for example episode_reward_mean; "
        "with the prefix 'min-' the smallest is best.",
    )
    storage: Storage | None = Field(
        default=None,
        description="Where checkpoints outlive their pod; none means that they are lost with the head pod.",
    )
