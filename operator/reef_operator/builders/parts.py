"""What every builder starts from: the job that it builds for, and the metadata of its object."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from reef.api import RLTrainingJob
from reef_operator import names
from reef_operator.model import Object, Server, Settings


@dataclass(frozen=True, kw_only=True)
class Blueprint:
    """What the objects of one job are made from."""

    owner: Object  # the RLTrainingJob as the API server has it
    document: Object  # the resolved document, which the pods read
    job: RLTrainingJob  # the same, validated
    settings: Settings
    server: Server

    @property
    def name(self) -> str:
        """Name of the job."""
        return str(self.owner["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """Namespace of the job."""
        return str(self.owner["metadata"]["namespace"])

    @property
    def uid(self) -> str:
        """Uid of the job, which tells it from an earlier one of its name."""
        return str(self.owner["metadata"]["uid"])

    def built(self, api_version: str, kind: str, name: str, **content: Any) -> dict[str, Any]:
        """Return an object of the job: owned by it, with its labels."""
        metadata = {
            "name": name,
            "namespace": self.namespace,
            "labels": names.labels(self.name),
            "ownerReferences": [names.owner_reference(self.owner)],
        }
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}


def fingerprint(made_from: Any) -> str:
    """Return 16 characters that tell one JSON value from another."""
    return hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()[:16]
