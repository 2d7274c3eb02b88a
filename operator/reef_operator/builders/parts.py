"""The input of every builder: the job, and the metadata of its objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reef.api import RLTrainingJob
from reef_operator import names
from reef_operator.model import Object, Server, Settings
from reef_operator.reading.situation import Situation


@dataclass(frozen=True, kw_only=True)
class Blueprint:
    """What the objects of one job are built from."""

    owner: Object  # the RLTrainingJob as the API server returns it
    document: Object  # the resolved document, which the pods read
    job: RLTrainingJob  # the same document, validated
    settings: Settings
    server: Server

    @classmethod
    def of(cls, situation: Situation) -> Blueprint:
        """Return the blueprint of a job that has a valid document."""
        observed, resolved = situation.observed, situation.resolved
        assert resolved.document is not None
        return cls(
            owner=observed.job,
            document=resolved.document,
            job=resolved.job,
            settings=observed.settings,
            server=observed.server,
        )

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
        """Uid of the job: it differs from that of an earlier job with the same name."""
        return str(self.owner["metadata"]["uid"])

    def built(self, api_version: str, kind: str, name: str, **content: Any) -> dict[str, Any]:
        """Return an object that the job owns, with the job's labels."""
        metadata = {
            "name": name,
            "namespace": self.namespace,
            "labels": names.labels(self.name),
            "ownerReferences": [names.owner_reference(self.owner)],
        }
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}
