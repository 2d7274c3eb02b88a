"""Cleanup of a finished job: first its workers are removed, then the head, then the job itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from reef.api import JobStatus
from reef_operator.model import Action, Delete, Object, Patch
from reef_operator.reading import pods
from reef_operator.reading.situation import Situation


def clean_up(situation: Situation, status: JobStatus) -> Iterator[Action]:
    """Return the cleanup actions that are due now.

    The head holds the result. It is removed only after the result is in the status, so a failed write cannot lose it.
    """
    now, head_job = situation.observed.now, situation.head_job
    yield from _no_more_heads(situation, status)
    if situation.old.phase == "Succeeded" and situation.head_job:
        # These replaced a head that was deleted after its training had ended.
        for late in situation.live_heads:
            yield Delete("Pod", pods.name(late), pods.uid(late))
    if now < _settled(situation, status):
        # The head still writes its last checkpoint, and may need its workers for it.
        return
    if now >= _workers_due(situation, status):
        yield from delete_pools(situation)
    if not situation.was_finished:
        return
    if head_job and not situation.deployments and not pods.is_going(head_job) and now >= _head_due(situation, status):
        yield Delete("Job", head_job["metadata"]["name"], head_job["metadata"]["uid"])
    ttl = _ttl_due(situation, status)
    if ttl and now >= ttl:
        yield Delete("RLTrainingJob", situation.name, situation.observed.job["metadata"]["uid"])


def clean_up_dues(situation: Situation, status: JobStatus) -> list[datetime]:
    """Return the times at which a finished job must be reconciled again."""
    now = situation.observed.now
    moments = [_settled(situation, status), _workers_due(situation, status), _ttl_due(situation, status)]
    if situation.head_job:
        moments.append(_head_due(situation, status))
    # Some actions wait until the result is in the status.
    soon = [] if situation.was_finished else [now]
    return soon + [moment for moment in moments if moment and moment > now]


def delete_pools(situation: Situation) -> Iterator[Action]:
    """Delete the Deployment of every pool."""
    for name, deployment in situation.deployments.items():
        if not pods.is_going(deployment):
            yield Delete("Deployment", name, deployment["metadata"]["uid"])


def delete_orphaned(situation: Situation, heads: Iterable[Object]) -> Iterator[Action]:
    """Delete heads that have no batch Job, because no owner deletes them."""
    for head in heads if situation.head_job is None else ():
        if pods.is_orphaned(head) and not pods.is_going(head):
            yield Delete("Pod", pods.name(head), pods.uid(head))


def _no_more_heads(situation: Situation, status: JobStatus) -> Iterator[Action]:
    """Stop the heads of a finished job: with parallelism 0, the batch Job deletes the running pod but no failed pod."""
    head_job, needless = situation.head_job, status.phase == "Failed" or bool(situation.live_heads)
    yield from delete_orphaned(situation, situation.live_heads)
    if not needless or head_job is None or pods.is_going(head_job):
        return
    decided = any(situation.batch_condition(kind) is not None for kind in ("Complete", "Failed"))
    if not decided and head_job["spec"].get("parallelism", 1) != 0:
        yield Patch("Job", head_job["metadata"]["name"], {"spec": {"parallelism": 0}})


def _completion(status: JobStatus) -> datetime:
    assert status.completion_time, "a finished job has a completion time"
    return datetime.fromisoformat(status.completion_time)


def _settled(situation: Situation, status: JobStatus) -> datetime:
    """Return when no head writes a checkpoint any more: at the latest after the grace period, as on a lost node."""
    if not situation.unended_heads or status.phase == "Succeeded":
        return _completion(status)
    grace = situation.spec.fault_tolerance.termination_grace_period_seconds
    return _completion(status) + timedelta(seconds=grace)


def _workers_due(situation: Situation, status: JobStatus) -> datetime:
    return _completion(status) + timedelta(seconds=situation.spec.cleanup.worker_delay_seconds)


def _head_due(situation: Situation, status: JobStatus) -> datetime:
    return _workers_due(situation, status) + timedelta(seconds=situation.spec.cleanup.head_delay_seconds)


def _ttl_due(situation: Situation, status: JobStatus) -> datetime | None:
    ttl = situation.spec.ttl_seconds_after_finished
    return None if ttl is None else _completion(status) + timedelta(seconds=ttl)
