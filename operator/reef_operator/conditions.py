"""The closed set of condition types and reasons, and conditions that keep the time of their last change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Literal

from reef.api.status import Condition

MAX_MESSAGE = 1024  # characters: Kubernetes cuts the messages of Events there


class ConditionType(StrEnum):
    """What is observed of a job."""

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
    """Why a condition holds or does not, and what an Event is about."""

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
    SCHEDULING_GATED = "SchedulingGated"  # no problem: a queue such as Kueue's may hold a pod for long
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


PROBLEMS = frozenset(  # what a person should hear of, as an Event of type Warning
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
    """One observation, before it is known since when it holds."""

    type: ConditionType
    holds: bool | None  # None: not known, on the way from one to the other
    reason: Reason
    message: str = ""


def kept_times(
    findings: Iterable[Finding], old: Iterable[Condition], now: datetime, generation: int | None
) -> list[Condition]:
    """Return the conditions of today; one whose status is as it was keeps the time of its last change."""
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
    """Return the condition of a type, None where it was not observed."""
    return next((condition for condition in conditions if condition.type == kind), None)


def timestamp(moment: datetime) -> str:
    """Return a moment as Kubernetes writes it: RFC 3339 in UTC, in whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment(timestamp: str) -> datetime:
    """Return the moment that a timestamp of Kubernetes names."""
    parsed = datetime.fromisoformat(timestamp)
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def encodable(text: str) -> str:
    """Return a text without halves of surrogate pairs, which JSON may name and UTF-8 cannot hold."""
    return text.encode(errors="replace").decode()


def shortened(message: str) -> str:
    """Return a message that fits into conditions and Events."""
    message = encodable(message)
    return message if len(message) <= MAX_MESSAGE else message[: MAX_MESSAGE - 1] + "…"
