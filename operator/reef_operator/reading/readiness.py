"""The conditions for what a job needs: storage, objects, head and workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from reef.api import JobSpec, NodePool
from reef_operator import names
from reef_operator.conditions import ConditionType, Finding, Reason, find, moment
from reef_operator.model import Object
from reef_operator.reading import pods
from reef_operator.reading.document import IMAGE, image_of_next_head
from reef_operator.reading.pods import Problem
from reef_operator.reading.situation import Situation

# Time from a batch Job to its pod, or from a node to a container; after it the message says where to look.
SLOW_START_S = 60.0
FIRST_BACK_OFF_S, LONGEST_BACK_OFF_S = 10.0, 600.0  # of a batch Job; doubled after each failed pod


def storage(situation: Situation) -> Finding:
    """Return whether checkpoints survive the head pod, and what is lost if they do not."""
    stored = situation.spec.checkpoint.storage
    if stored is None:
        return Finding(
            ConditionType.STORAGE_DURABLE,
            False,
            Reason.NOT_DURABLE,
            "spec.checkpoint.storage is not given: checkpoints and results are in the head pod. When it is replaced or "
            f"suspended, training starts again {beginning(situation)}; when the job ends, they are gone. Name a "
            "persistentVolumeClaim or a uri to keep them",
        )
    if stored.persistent_volume_claim:
        claim = stored.persistent_volume_claim.claim_name
        return Finding(ConditionType.STORAGE_DURABLE, True, Reason.VOLUME_CLAIM, f"in PersistentVolumeClaim {claim}")
    if situation.report and (problem := situation.report.storage_problem):
        return Finding(
            ConditionType.STORAGE_DURABLE,
            False,
            Reason.STORE_FAILING,
            f"training goes on, and what it writes is in the head pod alone until the store takes it: {problem}",
        )
    return Finding(ConditionType.STORAGE_DURABLE, True, Reason.OBJECT_STORE, f"in {stored.uri}")


def beginning(situation: Situation) -> str:
    """Return where a head starts that finds no checkpoint of this job."""
    return "from spec.restoreFrom" if situation.spec.restore_from else "from step 0"


def objects(situation: Situation) -> Finding:
    """Return whether the API server accepted every object of the job, and why it refused one."""
    refused = [f"{kind} {name}: {why}" for (kind, name), why in sorted(situation.observed.refused.items())]
    if refused:
        return Finding(ConditionType.OBJECTS_ACCEPTED, False, Reason.REFUSED, "; ".join(refused))
    return Finding(ConditionType.OBJECTS_ACCEPTED, True, Reason.ACCEPTED)


def head(situation: Situation) -> Finding:
    """Return whether the head is ready, and why it is not."""
    pod = situation.head
    if pod is None:
        return Finding(ConditionType.HEAD_READY, False, Reason.NO_POD, f"there is no head pod yet{_no_pod(situation)}")
    if pods.is_ready(pod):
        return Finding(ConditionType.HEAD_READY, True, Reason.READY, _not_in_effect(situation))
    if problem := pods.problem(pod):
        reason, message = problem.reason, f": {problem.message}{_missing_token(situation, problem)}"
    else:
        doing = "is being removed" if pods.is_going(pod) else "has ended" if pods.has_ended(pod) else "starts"
        reason, message = Reason.STARTING, f" {doing}{_slow_start(situation, [pod])}"
    told = "; ".join(filter(None, [f"pod {pods.name(pod)}{message}", _not_in_effect(situation)]))
    return Finding(ConditionType.HEAD_READY, False, reason, told)


def _missing_token(situation: Situation, problem: Problem) -> str:
    """Return how to make the Secret with the applications' token, if the kubelet does not find it or its key."""
    external = situation.spec.external_input
    if external is None or problem.reason is not Reason.CONTAINER_CONFIG_ERROR:
        return ""
    secret, namespace = external.token_secret_ref, situation.observed.job["metadata"]["namespace"]
    if secret.name not in problem.message:
        return ""
    return (
        f". spec.externalInput.tokenSecretRef names Secret {secret.name} with key {secret.key}. Create it, and the "
        f"head starts: kubectl create secret generic {secret.name} -n {namespace} "
        f"--from-literal={secret.key}=$(openssl rand -hex 32)"
    )


def missing_head_due(situation: Situation, limit_s: float = SLOW_START_S) -> datetime | None:
    """Return when the head's batch Job should have had a pod for `limit_s`; None if it has one or was deleted."""
    job = situation.head_job
    if situation.head is not None or job is None:
        return None
    since = moment(job["metadata"]["creationTimestamp"])
    ready = find(situation.old.conditions, ConditionType.HEAD_READY)
    # There was a pod until then, or there still is.
    if ready is not None:
        since = max(since, moment(ready.last_transition_time) if ready.status == "False" else situation.observed.now)
    return since + timedelta(seconds=_back_off_s(job) + limit_s)


def _back_off_s(job: Object) -> float:
    """Return how long a batch Job waits before it creates the next pod: its controller does not report the time."""
    failed = (job.get("status") or {}).get("failed") or 0
    return min(FIRST_BACK_OFF_S * 2.0 ** min(failed - 1, 9), LONGEST_BACK_OFF_S) if failed else 0.0


def _no_pod(situation: Situation) -> str:
    """Return where to look when Kubernetes creates no pod: a quota, a policy or a missing class can prevent it."""
    due = missing_head_due(situation)
    if due is None or situation.observed.now < due:
        return ""
    job, namespace = names.head(situation.name), situation.observed.job["metadata"]["namespace"]
    return f": the Events of `kubectl describe job {job} -n {namespace}` say why"


def _not_in_effect(situation: Situation) -> str:
    """Return a note if a new head would have other settings or another image; a head is not stopped for that."""
    document, made_from = situation.resolved.document, situation.head_annotations.get(names.HEAD_ANNOTATION)
    if document is None or made_from is None:
        return ""
    changed = [] if made_from == names.head_hash(situation.spec) else ["spec.head or spec.faultTolerance"]
    asked = situation.resolved.sources.spec
    if isinstance(asked, Mapping) and situation.resolved.accepted.reason is not Reason.INVALID_DOCUMENT:
        image = image_of_next_head(asked, situation.observed.settings)
        changed += [_shown(key, asked, image) for key in IMAGE if image.get(key) != document["spec"].get(key)]
    if not changed:
        return ""
    return (
        f"changed since this head was created: {', '.join(changed)}. This takes effect when the job is suspended and "
        "resumed"
    )


def _shown(field: str, asked: Mapping[str, Any], image: Mapping[str, Any]) -> str:
    """Return a field of the image; with the operator's default if the document does not give the field."""
    default = "" if field in asked or field not in image else f" (now the operator's default, {image[field]})"
    return f"spec.{field}{default}"


def workers(situation: Situation) -> Finding:
    """Return whether every pool has all its pods and all of them sample; if not, how many are missing, and why."""
    spec = situation.spec
    desired = sum(spec.pool_replicas.values())
    short = [pool for pool in spec.workers if len(ready_workers(situation, pool.name)) < pool.replicas]
    if situation.is_lingering and not situation.deployments:
        return Finding(ConditionType.WORKERS_READY, True, Reason.NO_WORKERS, "the training has ended: none are needed")
    if not short and situation.report and situation.report.worker_problem:
        message = f"the pods are ready, and not every process works: {situation.report.worker_problem}"
        return Finding(ConditionType.WORKERS_READY, False, Reason.WORKERS_FAILING, message)
    if desired == 0:
        return Finding(ConditionType.WORKERS_READY, True, Reason.NO_WORKERS, without_pods(spec))
    if not short:
        return Finding(ConditionType.WORKERS_READY, True, Reason.READY, f"{desired} of {desired} ready")
    if not situation.deployments and not situation.workers():
        message = f"{desired} {'worker is' if desired == 1 else 'workers are'} created once the head has a node"
        return Finding(ConditionType.WORKERS_READY, False, Reason.WAITING_FOR_HEAD, message)
    reasons: list[Reason] = []
    sentences = []
    for pool in short:
        problem = _pool_problem(situation, pool)
        reasons.append(problem.reason)
        ready = len(ready_workers(situation, pool.name))
        least = pool.least(pool.replicas)
        enough = "" if ready >= least else f", at least {least} needed"
        sentences.append(f"pool {pool.name}: {ready} of {pool.replicas} ready{enough}: {problem.message}")
    worst = next((reason for reason in reasons if reason is not Reason.WORKERS_MISSING), Reason.WORKERS_MISSING)
    return Finding(ConditionType.WORKERS_READY, False, worst, "; ".join(sentences))


def without_pods(spec: JobSpec) -> str:
    """Return what the head does where no worker pods are wanted."""
    return (
        "no worker pods are wanted: the head trains alone, or pauses until there is one"
        if spec.workers
        else "the head trains alone"
    )


def ready_workers(situation: Situation, pool: str | None = None) -> list[str]:
    """Return the names of the worker pods that have joined."""
    return [pods.name(pod) for pod in situation.workers(pool) if pods.is_ready(pod)]


def _pool_problem(situation: Situation, pool: NodePool) -> Problem:
    """Return the problem that keeps most of a pool's workers from joining."""
    workers = situation.workers(pool.name)
    live = [pod for pod in workers if not pods.has_ended(pod) and not pods.is_ready(pod)]
    # Evicted pods still exist long after they were replaced.
    unready = live or [pod for pod in workers if pods.has_ended(pod)]
    problems = [problem for pod in unready if (problem := pods.problem(pod))]
    if problems:
        reason, _ = Counter(problem.reason for problem in problems).most_common(1)[0]
        count = sum(problem.reason is reason for problem in problems)
        first = next(problem for problem in problems if problem.reason is reason)
        return Problem(reason, f"{count} {'pod' if count == 1 else 'pods'}: {first.message}")
    deployment = situation.deployments.get(names.pool(situation.name, pool.name), {})
    for condition in (deployment.get("status") or {}).get("conditions") or []:
        if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
            return Problem(Reason.REFUSED, str(condition.get("message") or condition.get("reason")))
    starting = f"{len(live)} starting{_slow_start(situation, live)}" if live else "pods are being created"
    return Problem(Reason.WORKERS_MISSING, starting)


def slow_start_due(pod: Object) -> datetime | None:
    """Return when a pod on a node will have been without a container for too long; None if one has started."""
    since = pods.unstarted_since(pod)
    return since + timedelta(seconds=SLOW_START_S) if since else None


def _slow_start(situation: Situation, starting: Sequence[Object]) -> str:
    """Return where to look when a pod is slow to start: neither its status nor its conditions name a missing volume."""
    for pod in starting:
        if (due := slow_start_due(pod)) and situation.observed.now >= due:
            namespace = situation.observed.job["metadata"]["namespace"]
            return (
                " for more than a minute: the Events of `kubectl describe pod "
                f"{pods.name(pod)} -n {namespace}` say what it waits for (a volume, the network, a large image)"
            )
    return ""
