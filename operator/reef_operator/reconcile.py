"""What is to be done about one job, from everything that is known about it: pure, and the same whatever came before."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from reef.api import JobStatus, NodePool
from reef_operator import names
from reef_operator.builders.config_map import config_map, data
from reef_operator.builders.head_job import head_job
from reef_operator.builders.network_policy import network_policy
from reef_operator.builders.pool_deployment import pool_deployment, pool_hash
from reef_operator.builders.secret import secret
from reef_operator.builders.service import service
from reef_operator.cleanup import clean_up, clean_up_dues, delete_orphaned, delete_pools
from reef_operator.conditions import moment
from reef_operator.events import transitions
from reef_operator.model import Action, Create, Delete, Observed, Patch, Plan
from reef_operator.phases import active_deadline, judge, silent_head_due, waiting_deadline
from reef_operator.reading import pods
from reef_operator.reading.readiness import missing_head_due, slow_start_due
from reef_operator.reading.situation import FINISHED, Situation
from reef_operator.status import changed, next_status

_SOON_S = 1.0  # the shortest delay, so that a status that is slow to come back is not waited for in a tight loop


def reconcile(observed: Observed) -> Plan:
    """Return what brings the job closer to what its document asks for."""
    if observed.job["metadata"].get("deletionTimestamp"):
        return Plan()  # its objects go with it, by their owner references
    situation = Situation(observed)
    outcome = judge(situation)
    status = next_status(situation, outcome)
    actions = tuple(_actions(situation, status))
    return Plan(
        actions=actions,
        status=changed(situation, status),
        events=tuple(transitions(situation.old, status, outcome)),
        requeue_after_s=_requeue_after_s(situation, status),
        certain=_is_certain(situation, status, actions),
    )


def _is_certain(situation: Situation, status: JobStatus, actions: Sequence[Action]) -> bool:
    """Whether the head's pod has ended well, which it cannot take back, and no more than its workers is removed."""
    ended_well = status.phase == "Succeeded" and situation.head is not None
    return ended_well and all(action.kind == "Deployment" for action in actions)


def _actions(situation: Situation, status: JobStatus) -> Iterator[Action]:
    if status.phase == "Invalid":
        yield from delete_pools(situation)  # of a head that cannot be made again
    elif status.phase in FINISHED:
        yield from clean_up(situation, status)
    elif status.phase in ("Suspending", "Suspended"):
        yield from _suspend(situation)
    else:
        readable = situation.resolved.document is not None
        if readable:
            yield from _provide(situation)
        yield from _head(situation, readable)
        yield from _pools(situation, readable)


def _suspend(situation: Situation) -> Iterator[Action]:
    """Remove the head, which writes a checkpoint, and the workers once it is gone or its time is up."""
    job = situation.head_job
    if job and not pods.is_going(job):
        yield Delete("Job", job["metadata"]["name"], job["metadata"]["uid"])
        return
    yield from delete_orphaned(situation, situation.heads)
    due = _removed_head_due(situation)
    if not situation.unended_heads if due is None else situation.observed.now >= due:
        yield from delete_pools(situation)


def _removed_head_due(situation: Situation) -> datetime | None:
    """When a head that is being removed has had its time; None for any other.

    One whose node is lost stays for longer, as nobody can tell that it ended.
    """
    job = situation.head_job
    if job is not None and not pods.is_going(job):
        return None
    if ends := [pod["metadata"]["deletionTimestamp"] for pod in situation.unended_heads if pods.is_going(pod)]:
        return max(map(moment, ends))  # Kubernetes has added the grace of the pod
    if job is None:
        return None
    grace = situation.spec.fault_tolerance.termination_grace_period_seconds
    return moment(job["metadata"]["deletionTimestamp"]) + timedelta(seconds=grace)


def _provide(situation: Situation) -> Iterator[Action]:
    """Make what pods need before they start: the document, the token, a name, a fence."""
    children, blueprint, name = situation.observed.children, situation.blueprint, situation.name
    document = children.get(("ConfigMap", names.document(name)))
    if document is None:
        yield Create(config_map(blueprint))
    elif _document_in(document) != blueprint.document:
        yield Patch("ConfigMap", names.document(name), {"data": data(blueprint)})
    if ("Secret", names.token(name)) not in children:
        yield Create(secret(blueprint, situation.observed.fresh_token))
    if ("Service", names.head(name)) not in children:
        yield Create(service(blueprint))
    if ("NetworkPolicy", names.network_policy(name)) not in children:
        yield Create(network_policy(blueprint))


def _document_in(config_map: object) -> object:
    assert isinstance(config_map, dict)
    try:
        return json.loads((config_map.get("data") or {})[names.DOCUMENT_KEY])
    except (KeyError, ValueError, RecursionError):
        return None


def _head(situation: Situation, readable: bool) -> Iterator[Action]:
    job = situation.head_job
    if job is None:
        if readable and not situation.unended_heads:  # two heads would write to one folder of checkpoints
            yield Create(head_job(situation.blueprint))
    elif not pods.is_going(job):
        for head in situation.heads:
            if pods.is_outlived(head) and not pods.is_going(head):  # the batch Job waits for the whole pod to end
                yield Delete("Pod", pods.name(head), pods.uid(head))
        limit = situation.spec.fault_tolerance.backoff_limit
        if readable and job["spec"].get("backoffLimit") != limit:
            yield Patch("Job", names.head(situation.name), {"spec": {"backoffLimit": limit}})


def _pools(situation: Situation, readable: bool) -> Iterator[Action]:
    """Make, change and remove the pools: never before the head has its place, or they would starve it."""
    if situation.is_lingering and situation.spec.cleanup.worker_delay_seconds == 0:
        yield from delete_pools(situation)  # the head lingers for its metrics' sake, which needs no GPUs
        return
    if not readable:
        return
    wanted = {names.pool(situation.name, pool.name): pool for pool in situation.spec.workers}
    for name, deployment in situation.deployments.items():
        if name not in wanted and not pods.is_going(deployment):
            yield Delete("Deployment", name, deployment["metadata"]["uid"])
    for name, pool in wanted.items():
        yield from _pool(situation, name, pool)


def _pool(situation: Situation, name: str, pool: NodePool) -> Iterator[Action]:
    deployment = situation.deployments.get(name)
    if deployment is None:
        if situation.live_head and pods.is_scheduled(situation.live_head):
            yield Create(pool_deployment(situation.blueprint, pool))
        return
    if pods.is_going(deployment):
        return
    annotations = deployment["metadata"].get("annotations") or {}
    if annotations.get(names.POOL_ANNOTATION) != pool_hash(situation.blueprint, pool):
        # Made anew rather than patched: a merge patch could not take away what the pool no longer has.
        yield Delete("Deployment", name, deployment["metadata"]["uid"])
    elif deployment["spec"].get("replicas") != pool.replicas:
        yield Patch("Deployment", name, {"spec": {"replicas": pool.replicas}})


def _requeue_after_s(situation: Situation, status: JobStatus) -> float | None:
    now = situation.observed.now
    if status.phase == "Invalid":
        return None
    if status.phase in FINISHED:
        dues = clean_up_dues(situation, status)
    else:
        deadlines = (active_deadline(situation, status), waiting_deadline(situation, status))
        waits = (silent_head_due(situation), missing_head_due(situation), _removed_head_due(situation))
        moments = (*deadlines, *waits, *map(slow_start_due, situation.observed.pods))
        dues = [due for due in moments if due and due > now]
    return max(_SOON_S, (min(dues) - now).total_seconds()) if dues else None
