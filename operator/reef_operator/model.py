"""The interface between deciding and acting: `reconcile` turns an `Observed` into a `Plan`; both are plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from typing import Any, Literal

Object = Mapping[str, Any]  # a Kubernetes object as the API server writes it
ChildKind = Literal["ConfigMap", "Secret", "Service", "NetworkPolicy", "Ingress", "Job", "Deployment"]
Child = tuple[ChildKind, str]  # kind and name of an object that a job owns


class Freshness(IntEnum):
    """How recent an observation is; each level includes the ones before it."""

    CACHED = 0  # from the watches' caches: each may be late, by a different time
    JOB_READ = 1  # the job was read from the API server, the rest is cached
    ALL_READ = 2  # the job, all its known children and its pods were read


@dataclass(frozen=True, kw_only=True)
class Server:
    """The capabilities of the cluster's API server."""

    major: int = 1
    minor: int = 20

    @property
    def names_namespaces(self) -> bool:
        """Whether every namespace has its name as a label (since 1.21)."""
        return (self.major, self.minor) >= (1, 21)

    @property
    def pod_failure_policy(self) -> bool:
        """Whether a batch Job can treat evictions and wrong jobs differently from other failures (since 1.26)."""
        return (self.major, self.minor) >= (1, 26)

    @property
    def counts_removed_pods(self) -> bool:
        """Whether a batch Job also counts failed pods that were removed: it uses finalizers, reliably since 1.26."""
        return (self.major, self.minor) >= (1, 26)


@dataclass(frozen=True, kw_only=True)
class IngressSettings:
    """What the Ingresses of all jobs have in common: the cluster's Ingress controller decides about it."""

    class_name: str  # empty: the cluster's default class
    annotations: Mapping[str, str]
    controller: tuple[Mapping[str, Any], ...]  # NetworkPolicyPeers of the controller, at least one


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the operator's installation, for all jobs."""

    trainer_image: str = "reef-trainer"
    image_pull_policy: str = "IfNotPresent"
    cluster_domain: str = "cluster.local"
    linger_seconds: int = 30  # how long a finished head stays up; long enough for two scrapes of its metrics
    default_pre_running_deadline_s: float | None = None
    forbidden: tuple[str, ...] = ()  # forbidden in templates of jobs: names from reading.forbidden.FORBIDDABLE
    # NetworkPolicyPeers that may read the metrics of heads, in addition to the operator; empty: every pod may
    metrics_from: tuple[Mapping[str, Any], ...] = ()
    operator_namespace: str = ""
    ingress: IngressSettings | None = None  # None: the operator makes no Ingresses, and has no rights on them


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The last report of a head from /progress, or the fact that it has not answered yet."""

    pod_uid: str
    time: datetime  # of the report; without a report: of the first request to the head
    report: Mapping[str, Any] | None  # the JSON document


@dataclass(frozen=True, kw_only=True)
class Observed:
    """The complete input of a decision; the same input gives the same plan."""

    job: Object
    children: Mapping[Child, Object]  # owned objects by kind and name
    pods: tuple[Object, ...]  # the job's pods, including pods that are terminating
    progress: Progress | None
    now: datetime  # with time zone
    # The Ray token for a job that has no Secret yet, 64 hexadecimal digits, drawn per observation. Never logged.
    fresh_token: str = field(repr=False)
    # The API server's answer to the last refused Create or Patch of an object (quota, admission, invalid template,
    # a name that another owner's object has). It is shown to the job's owner until a request is accepted or the object
    # is not needed any more.
    refused: Mapping[Child, str] = field(default_factory=dict)
    server: Server = Server()
    settings: Settings = Settings()


@dataclass(frozen=True)
class Create:
    """Create an object. Bodies are never logged, because that of a Secret holds its token."""

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
    """Delete an object if it still has this `uid`; its pods are deleted too.

    A batch Job is deleted with propagation Foreground: it is gone only when its pods have written their checkpoint and
    ended. Everything else is deleted with Background.
    """

    kind: ChildKind | Literal["Pod", "RLTrainingJob"]
    name: str
    uid: str


Action = Create | Patch | Delete


@dataclass(frozen=True, kw_only=True)
class Event:
    """A Kubernetes Event for the job's owner, reported once."""

    type: Literal["Normal", "Warning"]
    reason: str  # one of conditions.Reason
    message: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to do now, and when to reconcile again if nothing happens.

    Actions run in order; the status is written even if one fails. A plan never deletes an object whose result only the
    plan's own status holds, so the status may be written before or after the actions.
    """

    actions: tuple[Action, ...] = ()
    # The complete new status, which replaces the old one (a merge patch would keep fields that are not set any more).
    # None: unchanged.
    status: Object | None = None
    events: tuple[Event, ...] = ()  # for the change of the status; sent after it is written
    requeue_after_s: float | None = None
    # The plan is carried out only if it was made from an observation that is at least this fresh.
    freshness: Freshness = Freshness.CACHED
