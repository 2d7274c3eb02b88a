"""The seam between what is decided and what is done: `reconcile` makes a `Plan` of an `Observed`; both plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from typing import Any, Literal

Object = Mapping[str, Any]  # a Kubernetes object as the API server writes it
ChildKind = Literal["ConfigMap", "Secret", "Service", "NetworkPolicy", "Job", "Deployment"]
Child = tuple[ChildKind, str]  # kind and name of an object of a job


class Freshness(IntEnum):
    """How recent an observation is; each level includes those before it."""

    CACHED = 0  # what watches have reported: it may be late, and one watch later than another
    JOB_READ = 1  # the job itself has been read from the API server, the rest is cached
    ALL_READ = 2  # so have all its children and pods that are known


@dataclass(frozen=True, kw_only=True)
class Server:
    """What the cluster's API server can do."""

    major: int = 1
    minor: int = 20

    @property
    def names_namespaces(self) -> bool:
        """Whether every namespace carries its name as a label (1.21)."""
        return (self.major, self.minor) >= (1, 21)

    @property
    def pod_failure_policy(self) -> bool:
        """Whether a batch Job can tell evictions and wrong jobs from faults (1.26)."""
        return (self.major, self.minor) >= (1, 26)

    @property
    def counts_removed_pods(self) -> bool:
        """Whether a batch Job counts failed pods that are removed: by finalizers, for certain since 1.26."""
        return (self.major, self.minor) >= (1, 26)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the operator's installation decides for all jobs."""

    trainer_image: str = "reef-trainer"
    image_pull_policy: str = "IfNotPresent"
    cluster_domain: str = "cluster.local"
    linger_seconds: int = 30  # a finished head keeps serving its metrics for two scrapes
    default_pre_running_deadline_s: float | None = None
    forbidden: tuple[str, ...] = ()  # in templates of jobs: names of reading.forbidden.FORBIDDABLE
    # Kubernetes' NetworkPolicyPeers that may read the metrics of heads, beside the operator; none: everybody
    metrics_from: tuple[Mapping[str, Any], ...] = ()
    operator_namespace: str = ""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What a head last said of itself at /progress, or that it is asked and has said nothing yet."""

    pod_uid: str
    time: datetime  # of the report; without one: when the head was first asked
    report: Mapping[str, Any] | None  # the JSON document


@dataclass(frozen=True, kw_only=True)
class Observed:
    """Everything a decision is made from; the same input gives the same plan."""

    job: Object
    children: Mapping[Child, Object]  # owned objects by kind and name
    pods: tuple[Object, ...]  # the job's pods, also those that end
    progress: Progress | None
    now: datetime  # with its time zone
    # 64 hexadecimal digits, drawn for this observation: the Ray token of a job that has no Secret yet. Never logged.
    fresh_token: str = field(repr=False)
    # What the API server answered to the last Create or Patch of an object that it refused (quota, admission, a wrong
    # template, a name that someone else's object holds), until one is accepted or it is wanted no more: shown to the
    # job's owner.
    refused: Mapping[Child, str] = field(default_factory=dict)
    server: Server = Server()
    settings: Settings = Settings()


@dataclass(frozen=True)
class Create:
    """Make an object; the body of a Secret holds its token, so bodies are never logged."""

    body: Object = field(repr=False)

    @property
    def kind(self) -> str:
        """Kind of the object."""
        return str(self.body["kind"])

    @property
    def name(self) -> str:
        """Name of the object."""
        return str(self.body["metadata"]["name"])


@dataclass(frozen=True)
class Patch:
    """Change fields of an object (JSON merge patch)."""

    kind: ChildKind
    name: str
    body: Object


@dataclass(frozen=True)
class Delete:
    """Remove an object that still has this `uid`; its pods go with it.

    A batch Job is deleted with propagation Foreground, so that it is gone only when its pods have written their
    checkpoint and are gone; everything else with Background.
    """

    kind: ChildKind | Literal["Pod", "RLTrainingJob"]
    name: str
    uid: str


Action = Create | Patch | Delete


@dataclass(frozen=True, kw_only=True)
class Event:
    """News for the job's owner, reported once."""

    type: Literal["Normal", "Warning"]
    reason: str  # one of conditions.Reason
    message: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to do now, and when to look again without an event.

    Actions are done in their order; one that fails does not keep the status from being written. A plan never removes
    something whose result its own status is the first to hold, so status and actions may be written in either order.
    """

    actions: tuple[Action, ...] = ()
    # The whole new status, which replaces the old one (a merge patch would leave fields that are no longer there);
    # None: it is right as it is.
    status: Object | None = None
    events: tuple[Event, ...] = ()  # of the change of status: sent once it is written
    requeue_after_s: float | None = None
    freshness: Freshness = Freshness.CACHED  # what it was made from must be at least as fresh before it is carried out
