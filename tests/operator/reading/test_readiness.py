"""Conditions about storage, objects, head and workers."""

from __future__ import annotations

from typing import Any

import pytest
from job_objects import (
    EXTERNAL,
    NAMESPACE,
    NOW,
    ended,
    head,
    job,
    pool,
    ready,
    situation,
    unschedulable,
    waiting,
    worker,
)

from reef_operator.conditions import Reason
from reef_operator.model import Progress
from reef_operator.reading import readiness

DEPLOYED: dict[str, Any] = {"children": {("Deployment", "pole-cpu"): {"metadata": {"name": "pole-cpu"}}}}


@pytest.mark.parametrize(
    ("checkpoint", "holds", "part"),
    [
        (None, False, "starts again from step 0"),
        ({"storage": {"persistentVolumeClaim": {"claimName": "results"}}}, True, "results"),
        ({"storage": {"uri": "s3://bucket/folder"}}, True, "s3://bucket/folder"),
    ],
)
def test_storage(checkpoint: dict[str, Any] | None, holds: bool, part: str) -> None:
    finding = readiness.storage(situation(job(checkpoint=checkpoint)))
    assert finding.holds is holds and part in finding.message


def test_a_store_that_takes_nothing_is_not_durable_until_it_does() -> None:
    stored, running = {"storage": {"uri": "s3://bucket/folder"}}, head(**ready())
    for report, reason in (
        ({"storageProblem": "cannot write a: timeout"}, Reason.STORE_FAILING),
        ({}, Reason.OBJECT_STORE),
    ):
        progress = Progress(pod_uid=running["metadata"]["uid"], time=NOW, report=report)
        finding = readiness.storage(situation(job(checkpoint=stored), running, progress=progress))
        assert finding.reason is reason
        assert finding.holds is (not report)
        assert report.get("storageProblem", "s3://bucket/folder") in finding.message


@pytest.mark.parametrize(
    ("pods", "holds", "reason", "part"),
    [
        ([], False, Reason.NO_POD, "no head pod"),
        ([head()], False, Reason.STARTING, "pole-head-a starts"),
        ([head(**ready())], True, Reason.READY, ""),
        ([head(**unschedulable())], False, Reason.UNSCHEDULABLE, "pod pole-head-a: Unschedulable: 0/3"),
        ([head(**ended(137, reason="OOMKilled"))], False, Reason.OUT_OF_MEMORY, "OOMKilled"),
        ([head(**ended(1, "x")), head("pole-head-b", created=9, **ready())], True, Reason.READY, ""),
        ([worker("pole-cpu-1", **ready())], False, Reason.NO_POD, ""),
    ],
)
def test_head(pods: list[Any], holds: bool, reason: Reason, part: str) -> None:
    finding = readiness.head(situation(job(), *pods))
    assert (finding.holds, finding.reason) == (holds, reason) and part in finding.message


@pytest.mark.parametrize(
    "said", ['secret "game" not found', "couldn't find key token in Secret training/game", 'secret "other" not found']
)
def test_a_missing_token_of_applications_is_named_with_how_to_make_it(said: str) -> None:
    finding = readiness.head(
        situation(job(externalInput=EXTERNAL), head(**waiting("CreateContainerConfigError", said)))
    )
    assert finding.reason is Reason.CONTAINER_CONFIG_ERROR and said in finding.message
    fix = (
        "spec.externalInput.tokenSecretRef names Secret game with key token. Create it, and the head starts: kubectl "
        "create secret generic game -n training --from-literal=token=$(openssl rand -hex 32)"
    )
    assert (fix in finding.message) is ("other" not in said)


@pytest.mark.parametrize("pools", [[], [pool("cpu", 1)]])
def test_workers_that_fail_in_ready_pods_are_not_ready(pools: list[Any]) -> None:
    problem = "rollout worker 1 failed in sample(): EnvironmentError: no such level"
    running = head(**ready())
    progress = Progress(pod_uid=running["metadata"]["uid"], time=NOW, report={"workerProblem": problem})
    workers = [worker("pole-cpu-1", **ready())] if pools else []
    finding = readiness.workers(situation(job(workers=pools), running, *workers, progress=progress))
    assert (finding.holds, finding.reason) == (False, Reason.WORKERS_FAILING) and problem in finding.message


PULL = waiting("ImagePullBackOff", "no such image")


@pytest.mark.parametrize(
    ("pools", "pods", "holds", "reason", "message"),
    [
        ([], [], True, Reason.NO_WORKERS, "the head trains alone"),
        (
            [pool(replicas=0)],
            [],
            True,
            Reason.NO_WORKERS,
            "no worker pods are wanted: the head trains alone, or pauses until there is one",
        ),
        ([pool(replicas=1)], [worker("w", **ready())], True, Reason.READY, "1 of 1 ready"),
        (
            [pool(replicas=3, minReplicas=1)],
            [worker("a", **ready()), worker("b", **PULL), worker("c", **PULL)],
            False,
            Reason.IMAGE_PULL_FAILED,
            "pool cpu: 1 of 3 ready: 2 pods: ImagePullBackOff: no such image",
        ),
        (
            [pool(replicas=3, minReplicas=2)],
            [worker("a", **ready()), worker("b", **unschedulable("no node")), worker("c")],
            False,
            Reason.UNSCHEDULABLE,
            "pool cpu: 1 of 3 ready, at least 2 needed: 1 pod: Unschedulable: no node",
        ),
        (
            [pool(replicas=2)],
            [worker("a"), worker("b")],
            False,
            Reason.WORKERS_MISSING,
            "pool cpu: 0 of 2 ready, at least 1 needed: 2 starting",
        ),
        (
            [pool(replicas=1), pool("gpu", 1)],
            [worker("a"), worker("b", "gpu", **PULL)],
            False,
            Reason.IMAGE_PULL_FAILED,
            "pool cpu: 0 of 1 ready, at least 1 needed: 1 starting; "
            "pool gpu: 0 of 1 ready, at least 1 needed: 1 pod: ImagePullBackOff: no such image",
        ),
    ],
)
def test_workers(pools: list[Any], pods: list[Any], holds: bool, reason: Reason, message: str) -> None:
    finding = readiness.workers(situation(job(workers=pools), *pods, **DEPLOYED))
    assert (finding.holds, finding.reason, finding.message) == (holds, reason, message)


def test_evicted_pods_say_why_only_while_nothing_has_taken_their_place() -> None:
    evicted = worker("a", phase="Failed", reason="Evicted", message="low on memory")
    alone = readiness.workers(situation(job(workers=[pool(replicas=1)]), evicted, **DEPLOYED))
    assert alone.reason is Reason.EVICTED and "low on memory" in alone.message
    replaced = readiness.workers(situation(job(workers=[pool(replicas=1)]), evicted, worker("b"), **DEPLOYED))
    assert replaced.reason is Reason.WORKERS_MISSING and replaced.message.endswith("1 starting")


def test_a_pod_that_takes_long_to_start_says_where_to_look_in_words_that_stay() -> None:
    creating = waiting("ContainerCreating")
    slow, slower = (head(created=-age, **creating) for age in (60, 4000))
    finding = readiness.head(situation(job(), slow))
    assert finding.reason is Reason.STARTING
    assert "starts for more than a minute" in finding.message
    assert f"kubectl describe pod pole-head-a -n {NAMESPACE}" in finding.message
    assert readiness.head(situation(job(), slower)).message == finding.message
    running = {"phase": "Running", "containerStatuses": [{"name": "reef", "state": {"running": {}}}]}
    for fine in (head(created=-59, **creating), head(created=-4000, **running)):
        assert readiness.head(situation(job(), fine)).message == "pod pole-head-a starts"
    workers = [worker("a", created=-59), worker("b", created=-61), worker("c", created=-62)]
    message = readiness.workers(situation(job(workers=[pool(replicas=3)]), *workers, **DEPLOYED)).message
    assert "3 starting for more than a minute" in message and "describe pod b" in message


def test_workers_before_their_deployments() -> None:
    finding = readiness.workers(situation(job()))
    assert (finding.reason, finding.message) == (
        Reason.WAITING_FOR_HEAD,
        "2 workers are created once the head has a node",
    )


def test_workers_that_are_going_do_not_count() -> None:
    pod = worker("a", **ready())
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z"
    finding = readiness.workers(situation(job(workers=[pool(replicas=1)]), pod, **DEPLOYED))
    assert (finding.holds, finding.message) == (
        False,
        "pool cpu: 0 of 1 ready, at least 1 needed: pods are being created",
    )


def test_a_deployment_that_may_not_make_pods_says_why() -> None:
    failure = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}
    deployment = {"metadata": {"name": "pole-cpu"}, "status": {"conditions": [failure]}}
    finding = readiness.workers(situation(job(), children={("Deployment", "pole-cpu"): deployment}))
    assert finding.reason is Reason.REFUSED and "exceeded quota" in finding.message
