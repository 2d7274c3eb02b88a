"""Decides what to do about one job: a pure function of an observation, without memory of earlier calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from reef.api import JobStatus, NodePool
from reef_operator import names
from reef_operator.builders.config_map import config_map, data
from reef_operator.builders.head_job import head_job
from reef_operator.builders.ingress import ingress
from reef_operator.builders.network_policy import network_policy
from reef_operator.builders.parts import Blueprint
from reef_operator.builders.pool_deployment import pool_deployment
from reef_operator.builders.secret import secret
from reef_operator.builders.service import policy_service, service
from reef_operator.cleanup import clean_up, clean_up_dues, delete_orphaned, delete_pools
from reef_operator.conditions import moment
from reef_operator.events import transitions
from reef_operator.model import Action, Child, Create, Delete, Freshness, Object, Patch, Plan
from reef_operator.phases import active_deadline, judge, silent_head_due, waiting_deadline
from reef_operator.reading import pods
from reef_operator.reading.readiness import missing_head_due, slow_start_due
from reef_operator.reading.situation import FINISHED, Situation
from reef_operator.status import changed, next_status

# These phases state something about the cluster, so they need a fresh observation.
_PROMISES = ("Suspended", *FINISHED)
_SOON_S = (
    1.0  # the shortest delay, so that a job is not reconciled in a tight loop while its new status is on the way back
)
CROWDED_OUT_S = 120.0


def reconcile(situation: Situation) -> Plan:
    """Return the actions and the status that bring the job closer to its document."""
    if situation.observed.job["metadata"].get("deletionTimestamp"):
        # Owner references delete the job's objects together with it.
        return Plan()
    outcome = judge(situation)
    status = next_status(situation, outcome)
    actions = tuple(_actions(situation, status))
    return Plan(
        actions=actions,
        status=changed(situation, status),
        events=tuple(transitions(situation.old, status, outcome)),
        requeue_after_s=_requeue_after_s(situation, status),
        freshness=_freshness(situation, status, actions),
    )


def _freshness(situation: Situation, status: JobStatus, actions: Sequence[Action]) -> Freshness:
    """Return how fresh the observation must be before the plan is carried out.

    Caches may be late: a deleted job's objects would be created again, and a job as it was before its last edit,
    seen with newer children, would look edited. So any change needs the current job. A plan that deletes something or
    sets a final phase needs the current state of everything.
    """
    ended_well = status.phase == "Succeeded" and situation.head is not None  # the head cannot take this back
    if ended_well and all(action.kind == "Deployment" for action in actions):
        return Freshness.CACHED
    promises = status.phase in _PROMISES and status.phase != situation.old.phase
    if promises or any(isinstance(action, Delete) for action in actions):
        return Freshness.ALL_READ
    return Freshness.JOB_READ if actions else Freshness.CACHED


def _actions(situation: Situation, status: JobStatus) -> Iterator[Action]:
    if status.phase == "Invalid":
        # The document is invalid, so no head can be created for them.
        yield from delete_pools(situation)
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
    """Delete the head, which writes a checkpoint; delete the workers once it is gone or its grace period is over."""
    job = situation.head_job
    if job and not pods.is_going(job):
        yield Delete("Job", job["metadata"]["name"], job["metadata"]["uid"])
        return
    yield from delete_orphaned(situation, situation.heads)
    end = _head_grace_end(situation)
    if not situation.unended_heads if end is None else situation.observed.now >= end:
        yield from delete_pools(situation)


def _head_grace_end(situation: Situation) -> datetime | None:
    """Return when the grace period of a head that is being deleted ends; None for any other head.

    The pod of a lost node exists for longer, because Kubernetes cannot know whether it has ended.
    """
    job = situation.head_job
    if job is not None and not pods.is_going(job):
        return None
    if ends := [pod["metadata"]["deletionTimestamp"] for pod in situation.unended_heads if pods.is_going(pod)]:
        # Kubernetes has already added the pod's grace period.
        return max(map(moment, ends))
    if job is None:
        return None
    grace = situation.spec.fault_tolerance.termination_grace_period_seconds
    return moment(job["metadata"]["deletionTimestamp"]) + timedelta(seconds=grace)


def _provide(situation: Situation) -> Iterator[Action]:
    """Create the objects that pods need to start, and those that lead to them."""
    children, blueprint, name = situation.observed.children, Blueprint.of(situation), situation.name
    if ("ConfigMap", names.document(name)) not in children:
        yield Create(config_map(blueprint))
    elif situation.resolved.sources.stored != blueprint.document:
        yield Patch("ConfigMap", names.document(name), {"data": data(blueprint)})
    if ("Secret", names.token(name)) not in children:
        yield Create(secret(blueprint, situation.observed.fresh_token))
    if ("Service", names.head(name)) not in children:
        yield Create(service(blueprint))
    if ("NetworkPolicy", names.network_policy(name)) not in children:
        yield Create(network_policy(blueprint))
    yield from _open_to_applications(blueprint, children)


def _open_to_applications(blueprint: Blueprint, children: Mapping[Child, Object]) -> Iterator[Action]:
    """Create the Service and the Ingress that lead to the policy server of the head, if the document has them."""
    external, settings = blueprint.job.spec.external_input, blueprint.settings.ingress
    if external is None:
        return
    if ("Service", names.policy_server(blueprint.name)) not in children:
        yield Create(policy_service(blueprint))
    if settings and external.ingress and ("Ingress", names.policy_server(blueprint.name)) not in children:
        yield Create(ingress(blueprint, external.ingress, settings))


def _head(situation: Situation, readable: bool) -> Iterator[Action]:
    job = situation.head_job
    if job is None:
        # Two heads would write to the same checkpoint folder.
        if readable and not situation.unended_heads:
            yield Create(head_job(Blueprint.of(situation)))
    elif not pods.is_going(job):
        for head in situation.heads:
            # The batch Job waits until the whole pod has ended.
            if pods.is_outlived(head) and not pods.is_going(head):
                yield Delete("Pod", pods.name(head), pods.uid(head))
        limit = situation.spec.fault_tolerance.backoff_limit
        if readable and job["spec"].get("backoffLimit") != limit:
            yield Patch("Job", names.head(situation.name), {"spec": {"backoffLimit": limit}})


def _pools(situation: Situation, readable: bool) -> Iterator[Action]:
    """Create, change and delete the pools, once the head has a node: before, workers could take its resources."""
    if situation.is_lingering and situation.spec.cleanup.worker_delay_seconds == 0:
        # The head only serves its last metrics and needs no workers.
        yield from delete_pools(situation)
        return
    if not readable:
        return
    if (due := _crowded_out_due(situation)) and situation.observed.now >= due:
        yield from delete_pools(situation)
        return
    wanted = {names.pool(situation.name, pool.name): pool for pool in situation.spec.workers}
    for name, deployment in situation.deployments.items():
        if name not in wanted and not pods.is_going(deployment):
            yield Delete("Deployment", name, deployment["metadata"]["uid"])
    for name, pool in wanted.items():
        yield from _pool(situation, name, pool)


def _crowded_out_due(situation: Situation) -> datetime | None:
    """Return when the workers make room for a head without a node: they may hold its resources, and are idle anyway.

    Also for one that is not even created, or not let in by a queue: they may hold its quota.
    """
    head = situation.live_head
    if head is None:
        return missing_head_due(situation, CROWDED_OUT_S)
    if pods.is_scheduled(head) or not pods.has_no_node(head):
        return None
    return pods.created(head) + timedelta(seconds=CROWDED_OUT_S)


def _pool(situation: Situation, name: str, pool: NodePool) -> Iterator[Action]:
    deployment = situation.deployments.get(name)
    if deployment is None:
        if situation.live_head and pods.is_scheduled(situation.live_head):
            yield Create(pool_deployment(Blueprint.of(situation), pool))
        return
    if pods.is_going(deployment):
        return
    annotations = deployment["metadata"].get("annotations") or {}
    if annotations.get(names.POOL_ANNOTATION) != names.pool_hash(situation.spec, pool):
        # Deleted and created again, not patched: a merge patch cannot remove fields that the pool no longer has.
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
        heads = (silent_head_due, missing_head_due, _head_grace_end, _crowded_out_due)
        waits = (due(situation) for due in heads)
        moments = (*deadlines, *waits, *map(slow_start_due, situation.observed.pods))
        dues = [due for due in moments if due and due > now]
    return max(_SOON_S, (min(dues) - now).total_seconds()) if dues else None
