"""The phase of a job, computed from an observation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from reef.api import JobStatus
from reef.api.status import Phase
from reef_operator import names
from reef_operator.conditions import ConditionType, Reason, find, moment
from reef_operator.model import Object
from reef_operator.reading import pods, readiness
from reef_operator.reading.reports import read_report
from reef_operator.reading.situation import Situation

SILENT_HEAD_S = 60.0  # a head that is ready this long counts as training even if it does not answer
_BATCH_REASONS = {  # why Kubernetes marked a batch Job as failed
    "BackoffLimitExceeded": Reason.BACKOFF_LIMIT_EXCEEDED,
    "PodFailurePolicy": Reason.JOB_WRONG,
    "DeadlineExceeded": Reason.DEADLINE_EXCEEDED,
}


@dataclass(frozen=True)
class Outcome:
    """The phase, its reason and its message."""

    phase: Phase
    reason: Reason
    message: str


def judge(situation: Situation) -> Outcome:
    """Return the phase of a job; a finished job keeps its phase."""
    if situation.was_finished:
        return _as_recorded(situation)
    if situation.has_succeeded:
        return Outcome("Succeeded", Reason.SUCCEEDED, f"the training reached its end{_head_message(situation)}")
    readable = situation.resolved.document is not None
    if situation.spec.suspend and (readable or situation.old.start_time):
        return _suspension(situation)
    if not readable and situation.head_job is None and not situation.unended_heads:
        return Outcome("Invalid", Reason.INVALID_DOCUMENT, situation.resolved.accepted.message)
    return _failure(situation) or _active_deadline(situation) or _waiting_deadline(situation) or _alive(situation)


def _as_recorded(situation: Situation) -> Outcome:
    old = situation.old
    kind = ConditionType.SUCCEEDED if old.phase == "Succeeded" else ConditionType.FAILED
    condition = find(old.conditions, kind)
    known = condition is not None and condition.reason in set(Reason)
    reason = Reason(condition.reason) if condition and known else Reason.SUCCEEDED
    assert old.phase
    return Outcome(old.phase, reason, old.message)


def _suspension(situation: Situation) -> Outcome:
    job_or_pods = situation.head_job or situation.deployments or situation.observed.pods
    if not job_or_pods:
        place = f" {readiness.beginning(situation)}" if situation.spec.checkpoint.storage is None else ""
        what = f"resumes the job{place}" if situation.old.attempts else "starts the job"
        message = f"no pods are left; spec.suspend: false {what}"
        return Outcome("Suspended", Reason.SUSPENDED, message)
    left = sorted(situation.observed.pods, key=pods.name)
    shown = ", ".join(map(pods.name, left[:3])) + (" and others" if len(left) > 3 else "")
    problems = ((pod, problem) for pod in left if (problem := pods.problem(pod)))
    lost = (f"; {pods.name(pod)}: {problem.message}" for pod, problem in problems if problem.reason is Reason.NODE_LOST)
    return Outcome("Suspending", Reason.SUSPENDING, f"waits for {shown or 'its pods'} to end{next(lost, '')}")


def _failure(situation: Situation) -> Outcome | None:
    """Return the failure that was decided by the batch Job, or by an exit code that is never retried."""
    if situation.head_job is None or pods.is_going(situation.head_job):
        # Its pods were stopped by the operator, or by a person who deleted the batch Job; it is created again.
        return None
    # Any of the heads: servers before 1.26 start another one, which may have been killed meanwhile.
    for head in situation.heads:
        code = pods.exit_code(head)
        if code in situation.no_retry_exit_codes:
            return Outcome("Failed", Reason.JOB_WRONG, f"{_end_message(head)} (exit code {code} is not retried)")
    given_up = situation.batch_condition("Failed")
    if given_up is None and _has_used_up_attempts(situation):
        given_up = "BackoffLimitExceeded"
    if given_up is None:
        return None
    reason = _BATCH_REASONS.get(given_up, Reason.BACKOFF_LIMIT_EXCEEDED)
    tries = max(_attempts(situation), len(situation.heads))
    count = f"{tries} attempt{'' if tries == 1 else 's'}"
    return Outcome("Failed", reason, f"given up after {count}: {_failure_message(situation)}")


def _attempts(situation: Situation) -> int:
    """Return how many heads the current batch Job has started; after a suspension, a new one counts from zero."""
    before = situation.head_annotations.get(names.ATTEMPTS_ANNOTATION, "")
    return situation.old.attempts - (int(before) if before.isdecimal() else 0)


def _has_used_up_attempts(situation: Situation) -> bool:
    """Whether the head whose sidecars are about to be stopped was the last attempt.

    Some API servers count only failed pods that still exist, so they do not count the pods that were removed here.
    """
    head, job = situation.head, situation.head_job
    if situation.observed.server.counts_removed_pods or head is None or job is None or not pods.is_outlived(head):
        return False
    return _attempts(situation) > situation.spec.fault_tolerance.backoff_limit


def _last_ended(situation: Situation) -> Object | None:
    """Return the head that ended last. Servers before 1.26 start its successor at once, so it may not be the newest."""
    ended = [head for head in situation.heads if pods.exit_code(head) is not None]
    return ended[-1] if ended else None


def _end_message(head: Object) -> str:
    """Return the message of an ended head, or Kubernetes' description of its pod.

    A killed head could not write a message: its termination message is an older one.
    """
    result = None if pods.was_cut_off(head) else pods.result(head)
    return (read_report(result).message if result is not None else "") or _how_it_ended(head)


def _how_it_ended(head: Object) -> str:
    problem = pods.problem(head)
    return f"pod {pods.name(head)}: {problem.message}" if problem else f"pod {pods.name(head)} has ended"


def _failure_message(situation: Situation) -> str:
    """Return why the head ended; if it still runs or is gone, what is known about it."""
    if situation.head is not None and pods.exit_code(situation.head) is not None:
        return _end_message(situation.head)
    if situation.report and situation.report.message:
        return situation.report.message
    return readiness.head(situation).message


def active_deadline(situation: Situation, status: JobStatus) -> datetime | None:
    """Return when the job exceeds its active deadline, not counting suspended time; None without a deadline."""
    limit, since = situation.spec.active_deadline_seconds, status.active_since
    if limit is None or since is None:
        return None
    due = moment(since) + timedelta(seconds=limit - status.active_seconds)
    # The training is done: the job is late only if the head does not end.
    if situation.is_lingering:
        grace = situation.spec.fault_tolerance.termination_grace_period_seconds
        due += timedelta(seconds=situation.observed.settings.linger_seconds + grace)
    return due


def _active_deadline(situation: Situation) -> Outcome | None:
    due = active_deadline(situation, situation.old)
    if due is None or situation.observed.now < due:
        return None
    limit = situation.spec.active_deadline_seconds
    begin = "" if situation.spec.checkpoint.storage is None else ", which spec.restoreFrom begins with its checkpoint"
    message = f"the training was not done after spec.activeDeadlineSeconds: {limit}; give another job more{begin}"
    return Outcome("Failed", Reason.DEADLINE_EXCEEDED, message)


def waiting_deadline(situation: Situation, status: JobStatus) -> datetime | None:
    """Return when the job will have waited too long for its head to train."""
    limit: float | None = situation.spec.pre_running_deadline_seconds
    limit = situation.observed.settings.default_pre_running_deadline_s if limit is None else limit
    suspended = find(status.conditions, ConditionType.SUSPENDED)
    if limit is None or status.active_since or suspended is None or suspended.status != "False":
        return None
    return moment(suspended.last_transition_time) + timedelta(seconds=limit)


def _waiting_deadline(situation: Situation) -> Outcome | None:
    due = waiting_deadline(situation, situation.old)
    if due is None or situation.observed.now < due or is_training(situation):
        return None
    limit = situation.spec.pre_running_deadline_seconds
    said = f"spec.preRunningDeadlineSeconds: {limit}" if limit is not None else "the operator's limit"
    return Outcome(
        "Failed", Reason.PRE_RUNNING_DEADLINE_EXCEEDED, f"training had not begun after {said}: {_why_not(situation)}"
    )


def is_training(situation: Situation) -> bool:
    """Whether the head trains. Once it has trained, this stays true until its pod is replaced, even while it pauses."""
    head, old, report = situation.live_head, situation.old, situation.report
    if head is None:
        return False
    if situation.state == "training" or situation.is_lingering:
        return True
    if report and report.state in ("starting", "waiting") and report.training is None:
        # The head has not begun. If it counted as training before, that was only because it was silent.
        return False
    if old.phase == "Running" and old.head and old.head.uid == pods.uid(head):
        return True
    due = silent_head_due(situation)
    return due is not None and situation.observed.now >= due


def silent_head_due(situation: Situation) -> datetime | None:
    """Return when a ready head that does not answer counts as training: the network may keep the operator from it.

    The time starts again when the operator restarts, because a new operator has not asked any head yet.
    """
    head, asked = situation.live_head, situation.asked_in_vain_since
    ready = pods.ready_since(head) if head else None
    return max(ready, asked) + timedelta(seconds=SILENT_HEAD_S) if ready and asked else None


def _alive(situation: Situation) -> Outcome:
    if is_training(situation):
        return Outcome("Running", Reason.RUNNING, _running_message(situation))
    if _is_again(situation) or _has_failed_before(situation):
        where = "from the newest checkpoint"
        if situation.spec.checkpoint.storage is None:
            where = f"{readiness.beginning(situation)}, as spec.checkpoint.storage is not given"
        return Outcome("Retrying", Reason.RETRYING, f"{where}: {_why_again(situation)}")
    if situation.live_head and pods.is_scheduled(situation.live_head):
        return Outcome("Provisioning", Reason.PROVISIONING, _why_not(situation))
    return Outcome("Pending", Reason.PENDING, _why_not(situation))


def _is_again(situation: Situation) -> bool:
    """Whether a head trained before this one; false if the earlier head only counted as training."""
    old, head = situation.old, situation.live_head
    seemed = head is not None and old.head is not None and old.head.uid == pods.uid(head)
    return old.phase == "Retrying" or (old.phase == "Running" and not seemed)


def _has_failed_before(situation: Situation) -> bool:
    """Whether a head of the current batch Job failed; if that is being deleted, its pods were stopped on purpose."""
    if situation.head_job is None or pods.is_going(situation.head_job):
        return False
    return any(pods.has_ended(pod) or pods.exit_code(pod) is not None for pod in situation.heads)


def _head_message(situation: Situation) -> str:
    return f": {situation.report.message}" if situation.report and situation.report.message else ""


def _running_message(situation: Situation) -> str:
    """Return how many workers train; while the head pauses, the head's message about what it waits for."""
    if situation.is_lingering:
        return f"the training has ended, and the head answers for its last metrics{_head_message(situation)}"
    if situation.state == "waiting" and situation.report and situation.report.message:
        return situation.report.message
    desired = sum(situation.spec.pool_replicas.values())
    if desired == 0:
        return readiness.without_pods(situation.spec)
    return f"training with {len(readiness.ready_workers(situation))} of {desired} workers"


def _why_not(situation: Situation) -> str:
    """Return what the job waits for: problems of its objects or pods, otherwise the head's message."""
    return "; ".join(dict.fromkeys(_obstacles(situation))) or "the head pod starts"


def _why_again(situation: Situation) -> str:
    """Return what the job waits for, followed by why the previous head ended."""
    ended = _last_ended(situation)
    if ended is None or ended is situation.head:
        return _why_not(situation)
    return f"{_why_not(situation)}; before: {_how_it_ended(ended)}"


def _obstacles(situation: Situation) -> Iterator[str]:
    objects, head, workers = (check(situation) for check in (readiness.objects, readiness.head, readiness.workers))
    if not objects.holds:
        yield objects.message
    if not head.holds:
        yield head.message
    # The message of an ended head is part of both.
    if situation.report and situation.report.message not in head.message:
        yield situation.report.message
    # Workers that only wait for the head are no obstacle.
    if not workers.holds and (head.holds or workers.reason not in (Reason.WAITING_FOR_HEAD, Reason.WORKERS_MISSING)):
        yield workers.message
