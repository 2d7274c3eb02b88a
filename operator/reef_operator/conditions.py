"""All condition types and reasons, and conditions that keep the time of their last transition."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Literal

from reef.api.status import Condition

# Kubernetes truncates the messages of Events at this number of characters.
MAX_MESSAGE = 1024


class ConditionType(StrEnum):
    """The type of a condition of a job."""

    DOCUMENT_ACCEPTED = "DocumentAccepted"
    STORAGE_DURABLE = "StorageDurable"
    OBJECTS_ACCEPTED = "ObjectsAccepted"
    HEAD_READY = "HeadReady"
    WORKERS_READY = "WorkersReady"
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class Reason(StrEnum):
    """The reason of a condition or of an Event."""

    # the document
    ACCEPTED = "Accepted"
    INVALID_DOCUMENT = "InvalidDocument"
    IMMUTABLE_FIELD = "ImmutableField"
    # storage
    VOLUME_CLAIM = "PersistentVolumeClaim"
    OBJECT_STORE = "ObjectStore"
    NOT_DURABLE = "NotDurable"
    STORE_FAILING = "StoreFailing"
    # objects
    REFUSED = "Refused"
    # pods
    READY = "Ready"
    NO_WORKERS = "NoWorkers"
    WAITING_FOR_HEAD = "WaitingForHead"
    NO_POD = "NoPod"
    STARTING = "Starting"
    WORKERS_MISSING = "WorkersMissing"
    WORKERS_FAILING = "WorkersFailing"
    UNSCHEDULABLE = "Unschedulable"
    # Not a problem: a queue such as Kueue may hold a pod for a long time.
    SCHEDULING_GATED = "SchedulingGated"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    CONTAINER_CONFIG_ERROR = "ContainerConfigError"
    CRASH_LOOP = "CrashLoop"
    OUT_OF_MEMORY = "OutOfMemory"
    EVICTED = "Evicted"
    NODE_LOST = "NodeLost"
    CONTAINER_FAILED = "ContainerFailed"
    # the job's life
    PENDING = "Pending"
    PROVISIONING = "Provisioning"
    RUNNING = "Running"
    RETRYING = "Retrying"
    SUSPENDING = "Suspending"
    SUSPENDED = "Suspended"
    RESUMED = "Resumed"
    NOT_SUSPENDED = "NotSuspended"
    SCALED = "Scaled"
    SUCCEEDED = "Succeeded"
    JOB_WRONG = "JobWrong"
    BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    PRE_RUNNING_DEADLINE_EXCEEDED = "PreRunningDeadlineExceeded"


# Reasons that create an Event of type Warning.
PROBLEMS = frozenset(
    {
        Reason.INVALID_DOCUMENT,
        Reason.IMMUTABLE_FIELD,
        Reason.NOT_DURABLE,
        Reason.STORE_FAILING,
        Reason.REFUSED,
        Reason.UNSCHEDULABLE,
        Reason.IMAGE_PULL_FAILED,
        Reason.CONTAINER_CONFIG_ERROR,
        Reason.CRASH_LOOP,
        Reason.OUT_OF_MEMORY,
        Reason.EVICTED,
        Reason.NODE_LOST,
        Reason.CONTAINER_FAILED,
        Reason.WORKERS_FAILING,
    }
)


_STATUS: dict[bool | None, Literal["True", "False", "Unknown"]] = {True: "True", False: "False", None: "Unknown"}


@dataclass(frozen=True)
class Finding:
    """One observed condition, without its transition time."""

    type: ConditionType
    holds: bool | None  # None: unknown or in transition
    reason: Reason
    message: str = ""


def kept_times(
    findings: Iterable[Finding], old: Iterable[Condition], now: datetime, generation: int | None
) -> list[Condition]:
    """Return the new conditions; a condition with an unchanged status keeps its transition time."""
    known = {condition.type: condition for condition in old}
    conditions = []
    for finding in findings:
        status = _STATUS[finding.holds]
        was = known.get(finding.type)
        since = was.last_transition_time if was and was.status == status else timestamp(now)
        conditions.append(
            Condition(
                type=finding.type,
                status=status,
                reason=finding.reason,
                message=shortened(finding.message),
                last_transition_time=since,
                observed_generation=generation,
            )
        )
    return conditions


def find(conditions: Iterable[Condition], kind: ConditionType) -> Condition | None:
    """Return the condition of a type, or None where there is none."""
    return next((condition for condition in conditions if condition.type == kind), None)


def timestamp(moment: datetime) -> str:
    """Return a time as Kubernetes writes it: RFC 3339 in UTC, in whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment(timestamp: str) -> datetime:
    """Return the time that a Kubernetes timestamp denotes."""
    parsed = datetime.fromisoformat(timestamp)
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def encodable(text: str) -> str:
    """Return a text without unpaired surrogates: JSON allows them, UTF-8 does not."""
    return text.encode(errors="replace").decode()


def shortened(message: str) -> str:
    """Return a message shortened to the length limit of conditions and Events."""
    message = encodable(message)
    return message if len(message) <= MAX_MESSAGE else message[: MAX_MESSAGE - 1] + "…"
