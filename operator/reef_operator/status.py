"""The status of a job, computed from scratch at every reconcile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from operator import attrgetter
from typing import Any, TypeVar

from reef.api import JobStatus
from reef.api.status import HeadStatus, WorkersStatus
from reef_operator import names
from reef_operator.conditions import ConditionType, Finding, Reason, kept_times, moment, shortened, timestamp
from reef_operator.model import Object
from reef_operator.phases import Outcome
from reef_operator.reading import pods, readiness
from reef_operator.reading.reports import Report
from reef_operator.reading.situation import FINISHED, Situation

Part = TypeVar("Part")
_STOPPED = ("Suspending", "Suspended", *FINISHED)  # phases in which no workers run


def next_status(situation: Situation, outcome: Outcome) -> JobStatus:
    """Return the status that the job should have now."""
    observed, old = situation.observed, situation.old
    generation = observed.job["metadata"].get("generation")
    report = _newer_report(situation)
    head = _head(situation)
    recorded = JobStatus() if _lost_checkpoints(situation, outcome, head) else old
    return JobStatus(
        phase=outcome.phase,
        message=shortened(outcome.message),
        conditions=kept_times(_findings(situation, outcome), old.conditions, observed.now, generation),
        observed_generation=generation,
        attempts=old.attempts + _new_heads(situation),
        head=head,
        workers=_workers(situation, outcome, report, head),
        training=(report and report.training) or old.training,
        evaluation=(report and report.evaluation) or recorded.evaluation,
        checkpoint=(report and report.checkpoint) or recorded.checkpoint,
        best_trial=(report and report.best_trial) or recorded.best_trial,
        trials=(report and report.trials) or recorded.trials,
        **_times(situation, outcome),
    )


def _newer_report(situation: Situation) -> Report | None:
    """Return the head's last report, without the parts that are older than the status.

    A killed head left a report that it had prepared earlier. After the end of the job, a report of another head than
    the one in the status counts only if that head trained for longer.
    """
    report, head, old = situation.report, situation.head, situation.old
    if report is None or head is None:
        return None
    if situation.was_finished and old.training and not (old.head and old.head.uid == pods.uid(head)):
        said = report.training
        return report if said is not None and said.timesteps > old.training.timesteps else None
    if not pods.was_cut_off(head):
        return report
    trials = _unless_behind(report.trials, old.trials, lambda trials: trials.finished + trials.failed)
    return replace(
        report,
        training=_unless_behind(report.training, old.training, attrgetter("timesteps")),
        evaluation=_unless_behind(report.evaluation, old.evaluation, attrgetter("iteration")),
        checkpoint=_unless_behind(
            report.checkpoint, old.checkpoint, attrgetter("time")
        ),  # RFC 3339 in UTC: sorts as text
        trials=trials,
        best_trial=report.best_trial if trials is report.trials else None,
    )


def _unless_behind(said: Part | None, known: Part | None, order: Callable[[Part], Any]) -> Part | None:
    return None if said and known and order(known) > order(said) else said


def _lost_checkpoints(situation: Situation, outcome: Outcome, head: HeadStatus | None) -> bool:
    """Whether the checkpoints in the status are gone with the head that wrote them."""
    known, readable = situation.old.head, situation.resolved.document is not None
    replaced = head is not None and known is not None and head.uid != known.uid
    gone = replaced or outcome.phase == "Suspended"
    return gone and readable and situation.spec.checkpoint.storage is None


def written(status: JobStatus) -> dict[str, Any]:
    """Return a status in the form that is written to the API server."""
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)


def changed(situation: Situation, status: JobStatus) -> Object | None:
    """Return the status to write, or None if it has not changed."""
    new = written(status)
    return None if new == written(situation.old) else new


def _findings(situation: Situation, outcome: Outcome) -> Iterator[Finding]:
    phase = outcome.phase
    yield situation.resolved.accepted
    if phase != "Invalid":
        yield readiness.storage(situation)
        yield readiness.objects(situation)
        if phase in _STOPPED:
            yield Finding(ConditionType.HEAD_READY, False, outcome.reason)
            yield Finding(ConditionType.WORKERS_READY, False, outcome.reason)
        else:
            yield readiness.head(situation)
            yield readiness.workers(situation)
    if phase == "Invalid":
        return
    yield Finding(ConditionType.RUNNING, phase == "Running", outcome.reason, outcome.message)
    # Neither True nor False, so that a cancelled suspension counts as a resume.
    if phase == "Suspending":
        yield Finding(ConditionType.SUSPENDED, None, outcome.reason, outcome.message)
    else:
        suspended = phase == "Suspended"
        yield Finding(ConditionType.SUSPENDED, suspended, outcome.reason if suspended else Reason.NOT_SUSPENDED)
    if phase in FINISHED:
        yield Finding(ConditionType(phase), True, outcome.reason, outcome.message)


def _new_heads(situation: Situation) -> int:
    """Count head pods that `attempts` does not include: those newer than the newest counted one; none after the end."""
    known, head = situation.old.head, situation.head
    if situation.was_finished or head is None:
        return 0
    if known is None:
        return len(situation.heads)
    since = moment(known.start_time)
    newer = [pod for pod in situation.heads if since < pods.created(pod) <= pods.created(head)]
    replaced_within_a_second = pods.uid(head) != known.uid and pods.created(head) == since
    return len(newer) + replaced_within_a_second


def _head(situation: Situation) -> HeadStatus | None:
    pod, known = situation.head, situation.old.head
    if (
        pod is None
        or situation.was_finished
        or (known and (known.uid == pods.uid(pod) or moment(known.start_time) > pods.created(pod)))
    ):
        return known
    return HeadStatus(
        pod=pods.name(pod),
        uid=pods.uid(pod),
        start_time=timestamp(pods.created(pod)),
        recreated_before=situation.old.workers.recreated,
    )


def _workers(situation: Situation, outcome: Outcome, report: Report | None, head: HeadStatus | None) -> WorkersStatus:
    recreated, pod = situation.old.workers.recreated, situation.head
    if report and head and pod and head.uid == pods.uid(pod):
        recreated = max(recreated, head.recreated_before + report.workers_recreated)
    if outcome.phase == "Invalid":
        return WorkersStatus(recreated=recreated)
    pools = situation.spec.pool_replicas
    labels = {names.JOB_LABEL: situation.name, names.COMPONENT_LABEL: names.WORKER}
    # `kubectl scale` and autoscalers change the first pool.
    first = next(iter(pools), None)
    if first is not None:
        labels[names.POOL_LABEL] = first
    return WorkersStatus(
        desired=0 if outcome.phase in _STOPPED else sum(pools.values()),
        ready=len(readiness.ready_workers(situation)),
        scaled=len(readiness.ready_workers(situation, first)) if first is not None else 0,
        recreated=recreated,
        selector=names.selector(labels),
    )


def _times(situation: Situation, outcome: Outcome) -> dict[str, Any]:
    old, now = situation.old, situation.observed.now
    active_since, active_seconds = old.active_since, old.active_seconds
    if outcome.phase == "Running":
        active_since = active_since or timestamp(now)
    elif outcome.phase != "Retrying" and active_since:
        active_seconds += max(0, int((now - moment(active_since)).total_seconds()))
        active_since = None
    completion = old.completion_time
    if outcome.phase in FINISHED and completion is None:
        completion = timestamp(_end(situation))
    taken_up = outcome.phase != "Invalid"
    return {
        "start_time": old.start_time or (timestamp(now) if taken_up else None),
        "running_time": old.running_time or (timestamp(now) if outcome.phase == "Running" else None),
        "active_since": active_since,
        "active_seconds": active_seconds,
        "completion_time": completion,
    }


def _end(situation: Situation) -> datetime:
    """Return when the job ended: the end of its head, if that is known; never a time in the future."""
    ended = pods.finished_at(situation.head) if situation.head else None
    return min(ended or situation.observed.now, situation.observed.now)
