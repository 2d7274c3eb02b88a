"""Where a job is in its life, judged from what was observed."""

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

SILENT_HEAD_S = 60.0  # a head that is ready this long counts as training, even where nobody can ask it
_BATCH_REASONS = {  # why Kubernetes gave a batch Job up
    "BackoffLimitExceeded": Reason.BACKOFF_LIMIT_EXCEEDED,
    "PodFailurePolicy": Reason.JOB_WRONG,
    "DeadlineExceeded": Reason.DEADLINE_EXCEEDED,
}


@dataclass(frozen=True)
class Outcome:
    """The phase, why, and what it means for this job."""

    phase: Phase
    reason: Reason
    message: str


def judge(situation: Situation) -> Outcome:
    """Return the phase of a job; one that is finished stays so."""
    if situation.was_finished:
        return _as_recorded(situation)
    if situation.has_succeeded:
        return Outcome("Succeeded", Reason.SUCCEEDED, f"the training reached its end{_said(situation)}")
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
        anew = f" {readiness.beginning(situation)}" if situation.spec.checkpoint.storage is None else ""
        what = f"resumes the job{anew}" if situation.old.attempts else "starts the job"
        message = f"no pods are left; spec.suspend: false {what}"
        return Outcome("Suspended", Reason.SUSPENDED, message)
    left = sorted(situation.observed.pods, key=pods.name)
    shown = ", ".join(map(pods.name, left[:3])) + (" and others" if len(left) > 3 else "")
    problems = ((pod, problem) for pod in left if (problem := pods.problem(pod)))
    lost = (f"; {pods.name(pod)}: {problem.message}" for pod, problem in problems if problem.reason is Reason.NODE_LOST)
    return Outcome("Suspending", Reason.SUSPENDING, f"waits for {shown or 'its pods'} to end{next(lost, '')}")


def _failure(situation: Situation) -> Outcome | None:
    """Return the end that Kubernetes' batch Job, or an exit code that is never retried, has decided."""
    if situation.head_job is None or pods.is_going(situation.head_job):
        return None  # its pods were stopped by us, or by someone who deleted it: it is created again
    given_up = situation.batch_condition("Failed")
    if ended := _last_ended(situation):
        code = pods.exit_code(ended)
        if code in situation.no_retry_exit_codes:
            return Outcome("Failed", Reason.JOB_WRONG, f"{_words_of(ended)} (exit code {code} is not retried)")
    if given_up is None and _has_used_up_attempts(situation):
        given_up = "BackoffLimitExceeded"
    if given_up is None:
        return None
    reason = _BATCH_REASONS.get(given_up, Reason.BACKOFF_LIMIT_EXCEEDED)
    tries = max(situation.old.attempts, len(situation.heads))
    return Outcome("Failed", reason, f"given up after {tries} attempts: {_last_words(situation)}")


def _has_used_up_attempts(situation: Situation) -> bool:
    """Whether the head whose side cars are about to be stopped was the last one.

    Servers that only count failed pods which are still there do not know of those that were removed for that.
    """
    head, job = situation.head, situation.head_job
    if situation.observed.server.counts_removed_pods or head is None or job is None or not pods.is_outlived(head):
        return False
    before = situation.head_annotations.get(names.ATTEMPTS_ANNOTATION, "")
    attempts = situation.old.attempts - (int(before) if before.isdecimal() else 0)
    return attempts > situation.spec.fault_tolerance.backoff_limit


def _last_ended(situation: Situation) -> Object | None:
    """Return the head that ended last; there may be a newer one, which servers before 1.26 start at once."""
    ended = [head for head in situation.heads if pods.exit_code(head) is not None]
    return ended[-1] if ended else None


def _words_of(head: Object) -> str:
    """Return the message of a head that has ended, else what Kubernetes says about its pod.

    One that was cut off had no time for a word: what is in its termination message was there before.
    """
    result = None if pods.was_cut_off(head) else pods.result(head)
    return (read_report(result).message if result is not None else "") or _how_it_ended(head)


def _how_it_ended(head: Object) -> str:
    problem = pods.problem(head)
    return f"pod {pods.name(head)}: {problem.message}" if problem else f"pod {pods.name(head)} has ended"


def _last_words(situation: Situation) -> str:
    """Return why the head ended; of one that is still there or gone, what is known of it."""
    if situation.head is not None and pods.exit_code(situation.head) is not None:
        return _words_of(situation.head)
    if situation.report and situation.report.message:
        return situation.report.message
    return readiness.head(situation).message


def active_deadline(situation: Situation, status: JobStatus) -> datetime | None:
    """When the job will have been active for longer than it may, not counting suspensions."""
    limit, since = situation.spec.active_deadline_seconds, status.active_since
    if limit is None or since is None:
        return None
    due = moment(since) + timedelta(seconds=limit - status.active_seconds)
    if situation.is_lingering:  # its work is done: it is late only if it does not end
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
    """When the job will have waited for its head to train for longer than it may."""
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
    """Whether the head trains; once it did, it does until the pod is another one, also while it pauses."""
    head, old, report = situation.live_head, situation.old, situation.report
    if head is None:
        return False
    if situation.state == "training" or situation.is_lingering:
        return True
    if report and report.state in ("starting", "waiting") and report.training is None:
        return False  # it has not begun: where it counted as training, that was by its silence alone
    if old.phase == "Running" and old.head and old.head.uid == pods.uid(head):
        return True
    due = silent_head_due(situation)
    return due is not None and situation.observed.now >= due


def silent_head_due(situation: Situation) -> datetime | None:
    """When a ready head that is asked in vain counts as training: the operator may be cut off from it.

    An operator that was started again has asked nobody yet: for it the silence begins anew.
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
    """Whether a head trained before this one; not where this one only seemed to."""
    old, head = situation.old, situation.live_head
    seemed = head is not None and old.head is not None and old.head.uid == pods.uid(head)
    return old.phase == "Retrying" or (old.phase == "Running" and not seemed)


def _has_failed_before(situation: Situation) -> bool:
    """Whether a head of the present batch Job failed; pods of one that is being removed were stopped on purpose."""
    if situation.head_job is None or pods.is_going(situation.head_job):
        return False
    return any(pods.has_ended(pod) or pods.exit_code(pod) is not None for pod in situation.heads)


def _said(situation: Situation) -> str:
    return f": {situation.report.message}" if situation.report and situation.report.message else ""


def _running_message(situation: Situation) -> str:
    """Return how many pods train; while the head waits, its own message."""
    if situation.is_lingering:
        return f"the training has ended, and the head answers for its last metrics{_said(situation)}"
    if situation.state == "waiting" and situation.report and situation.report.message:
        return situation.report.message
    desired = sum(situation.spec.pool_replicas.values())
    if desired == 0:
        return "the head trains alone"
    return f"training with {len(readiness.ready_workers(situation))} of {desired} workers"


def _why_not(situation: Situation) -> str:
    """Return what the job waits for: what is wrong with its objects or pods, else what the head says."""
    return "; ".join(dict.fromkeys(_obstacles(situation))) or "the head pod starts"


def _why_again(situation: Situation) -> str:
    """Return what the job waits for, and before that why the head that was there ended."""
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
    if situation.report and situation.report.message not in head.message:  # of one that ended it is both
        yield situation.report.message
    if head.holds and not workers.holds:
        yield workers.message
