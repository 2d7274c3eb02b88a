"""Kubernetes Events for changes of the status; nothing else creates an Event."""

from __future__ import annotations

from collections.abc import Iterator

from reef.api import JobStatus
from reef_operator.conditions import PROBLEMS, ConditionType, Reason, find, shortened
from reef_operator.model import Event
from reef_operator.phases import Outcome

_WARNINGS = ("Retrying", "Failed")
# Nothing has happened in these phases; the conditions say what is wrong.
_WITHOUT_EVENT = ("Pending", "Invalid")
_HELD = ("Suspending", "Suspended")


def transitions(old: JobStatus, new: JobStatus, outcome: Outcome) -> Iterator[Event]:
    """Yield the Events for the change from the old status to the new one."""
    if old.phase in _HELD and new.phase not in (*_HELD, "Failed", "Succeeded"):
        first = "the job is no longer suspended and starts for the first time"
        message = f"the job is resumed {_place(new)}" if old.attempts else first
        yield Event(type="Normal", reason=Reason.RESUMED, message=message)
    if new.phase != old.phase and new.phase not in _WITHOUT_EVENT:
        yield Event(
            type="Warning" if new.phase in _WARNINGS else "Normal",
            reason=outcome.reason,
            message=shortened(outcome.message),
        )
    was, wanted = old.workers.desired, new.workers.desired
    if was != wanted and old.phase == new.phase:
        yield Event(type="Normal", reason=Reason.SCALED, message=f"workers: {was} -> {wanted}")
    yield from _problems(old, new)


def _place(status: JobStatus) -> str:
    storage = find(status.conditions, ConditionType.STORAGE_DURABLE)
    if storage is not None and storage.reason == Reason.NOT_DURABLE:
        return "from its beginning, as spec.checkpoint.storage is not given"
    return "from its newest checkpoint"


def _problems(old: JobStatus, new: JobStatus) -> Iterator[Event]:
    for condition in new.conditions:
        if condition.status == "True" or condition.reason not in PROBLEMS:
            continue
        was = find(old.conditions, ConditionType(condition.type))
        # A pod's message changes with every retry: not news. The document's message changes when a person edits it.
        same = was if was and was.reason == condition.reason else None
        if same and (condition.type != ConditionType.DOCUMENT_ACCEPTED or same.message == condition.message):
            continue
        yield Event(type="Warning", reason=condition.reason, message=condition.message)
