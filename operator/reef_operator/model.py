"""The seam between what is decided and what is done: `reconcile(Observed) -> Plan`, both plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

Object = Mapping[str, Any]  # a Kubernetes object as the API server writes it
ChildKind = Literal["ConfigMap", "Secret", "Service", "NetworkPolicy", "Job", "Deployment"]


@dataclass(frozen=True, kw_only=True)
class Server:
    """What the cluster's API server can do."""

    major: int = 1
    minor: int = 20

    @property
    def pod_failure_policy(self) -> bool:
        """Whether a batch Job can tell evictions and wrong jobs from faults (1.26)."""
        return (self.major, self.minor) >= (1, 26)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the operator's installation decides for all jobs."""

    trainer_image: str = "reef-trainer"
    image_pull_policy: str = "IfNotPresent"
    cluster_domain: str = "cluster.local"
    linger_seconds: int = 30  # a finished head keeps serving its metrics for two scrapes
    default_pre_running_deadline_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What a head last said of itself at /progress."""

    pod_uid: str
    time: datetime
    report: Mapping[str, Any]  # the JSON document


@dataclass(frozen=True, kw_only=True)
class Observed:
    """Everything a decision is made from; the same input gives the same plan."""

    job: Object
    children: Mapping[tuple[ChildKind, str], Object]  # owned objects by kind and name
    pods: tuple[Object, ...]  # the job's pods, also those that end
    progress: Progress | None
    now: datetime
    server: Server = Server()
    settings: Settings = Settings()


@dataclass(frozen=True)
class Create:
    """Make an object."""

    body: Object


@dataclass(frozen=True)
class Patch:
    """Change fields of an object (JSON merge patch)."""

    kind: ChildKind
    name: str
    body: Object


@dataclass(frozen=True)
class Delete:
    """Remove an object that still has this `uid`; its pods go with it."""

    kind: ChildKind | Literal["Pod", "RLTrainingJob"]
    name: str
    uid: str


Action = Create | Patch | Delete


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something worth telling the job's owner, once."""

    type: Literal["Normal", "Warning"]
    reason: str  # one of conditions.Reason
    message: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to be done now, and when to look again without being called."""

    actions: tuple[Action, ...] = ()
    status: Object | None = None  # the whole new status; None: it is right as it is
    events: tuple[Event, ...] = field(default=())
    requeue_after_s: float | None = None
