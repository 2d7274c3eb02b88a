"""Reading pods: every way in which one fails to start or ends, in the words a person needs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from job_objects import ended, head, ready, result, unschedulable, waiting

from reef_operator.conditions import Reason
from reef_operator.reading import pods

OOM = {"exitCode": 137, "reason": "OOMKilled"}


def condition(kind: str, status: str, reason: str = "", message: str = "") -> dict[str, Any]:
    return {"conditions": [{"type": kind, "status": status, "reason": reason, "message": message}]}


def silent(evicted: bool = False) -> dict[str, Any]:
    """The node's controller takes readiness away; the kubelet would have taken that of the containers too."""
    target = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
    conditions = [{"type": "ContainersReady", "status": "True"}, {"type": "Ready", "status": "False"}]
    return {"conditions": conditions + [target] * evicted}


def initialising(**state: Any) -> dict[str, Any]:
    return {"phase": "Pending", "initContainerStatuses": [{"name": "fetch", "state": state}]}


@pytest.mark.parametrize(
    ("status", "reason", "part"),
    [
        (waiting("ErrImagePull", "no such host"), Reason.IMAGE_PULL_FAILED, "ErrImagePull: no such host"),
        (waiting("ImagePullBackOff", 'Back-off pulling "x"'), Reason.IMAGE_PULL_FAILED, 'Back-off pulling "x"'),
        (waiting("ErrImageNeverPull"), Reason.IMAGE_PULL_FAILED, "ErrImageNeverPull"),
        (waiting("InvalidImageName", "bad"), Reason.IMAGE_PULL_FAILED, "InvalidImageName: bad"),
        (
            waiting("CreateContainerConfigError", 'secret "s3" not found'),
            Reason.CONTAINER_CONFIG_ERROR,
            'secret "s3" not found',
        ),
        (unschedulable("3 Insufficient cpu."), Reason.UNSCHEDULABLE, "Unschedulable: 3 Insufficient cpu."),
        (
            waiting("CrashLoopBackOff", "back-off 10s", last={"exitCode": 1, "message": "ImportError: my_env"}),
            Reason.CRASH_LOOP,
            "CrashLoopBackOff: ended with exit code 1: ImportError: my_env",
        ),
        (waiting("CrashLoopBackOff", "back-off 10s"), Reason.CRASH_LOOP, "CrashLoopBackOff: back-off 10s"),
        (waiting("CrashLoopBackOff", last=OOM), Reason.OUT_OF_MEMORY, "limit of 1Gi: raise the limit"),
        (ended(137, reason="OOMKilled"), Reason.OUT_OF_MEMORY, "OOMKilled"),
        (ended(137), Reason.CONTAINER_FAILED, "exit code 137 (killed: SIGKILL)"),
        (ended(1, "x" * 400 + "ValueError: boom"), Reason.CONTAINER_FAILED, "xValueError: boom"),
        (ended(1, result("the loss became NaN")), Reason.CONTAINER_FAILED, "exit code 1: the loss became NaN"),
        (ended(1, '{"no": "message"}'), Reason.CONTAINER_FAILED, '{"no": "message"}'),
        (
            {"phase": "Failed", "reason": "Evicted", "message": "low on memory"},
            Reason.EVICTED,
            "Evicted: low on memory",
        ),
        ({"phase": "Failed", "reason": "Preempting", "message": "for pod y"}, Reason.EVICTED, "Preempting: for pod y"),
        (
            {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no healthy devices"},
            Reason.CONTAINER_FAILED,
            "UnexpectedAdmissionError: no healthy devices",
        ),
        ({"phase": "Failed", "reason": "NodeShutdown"}, Reason.NODE_LOST, "NodeShutdown"),
        ({"phase": "Running", **silent()}, Reason.NODE_LOST, "node-1 does not answer"),
        ({"phase": "Running", **silent(evicted=True)}, Reason.NODE_LOST, "delete pod pole-head-a --force"),
        ({"phase": "Running", "reason": "NodeLost", "message": "n1 gone"}, Reason.NODE_LOST, "NodeLost: n1 gone"),
        (
            condition("DisruptionTarget", "True", "PreemptionByScheduler", "by a more important pod"),
            Reason.EVICTED,
            "PreemptionByScheduler: by a more important pod",
        ),
        (
            initialising(terminated={"exitCode": 3, "message": "no data"}),
            Reason.CONTAINER_FAILED,
            "exit code 3: no data",
        ),
        (initialising(waiting={"reason": "ErrImagePull", "message": "m"}), Reason.IMAGE_PULL_FAILED, "ErrImagePull: m"),
    ],
)
def test_problem(status: dict[str, Any], reason: Reason, part: str) -> None:
    found = pods.problem(head(**status))
    assert found is not None and found.reason is reason
    assert part in found.message and len(found.message) < 600


@pytest.mark.parametrize(
    "status",
    [
        {},
        waiting("ContainerCreating"),
        waiting("PodInitializing"),
        ready(),
        ended(0, result()),
        initialising(terminated={"exitCode": 0}),
        condition("PodScheduled", "False", "SchedulingGated"),
    ],
)
def test_no_problem(status: dict[str, Any]) -> None:
    assert pods.problem(head(**status)) is None


def test_a_container_that_starts_again_after_running_out_of_memory_says_so() -> None:
    state = {"name": "reef", "state": {"running": {}}, "lastState": {"terminated": OOM}}
    found = pods.problem(head(phase="Running", containerStatuses=[state]))
    assert found and found.reason is Reason.OUT_OF_MEMORY


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (json.dumps({"exitCode": 0}), {"exitCode": 0}),
        ("Traceback", None),
        ("", None),
        ("[1]", None),
        ("[" * 9000, None),
    ],
)
def test_result(message: str, expected: Any) -> None:
    assert pods.result(head(**ended(1, message))) == expected
    assert pods.result(head(**ready())) is None


def test_the_end_of_a_side_car_is_not_the_heads() -> None:
    pod = head(**ended(0, finished=5))
    assert pods.exit_code(pod) == 0 and pods.finished_at(pod) is not None
    pod["status"]["containerStatuses"][0]["name"] = "logger"
    assert pods.exit_code(pod) is None and pods.finished_at(pod) is None


def test_ready() -> None:
    pod = head(**ready(since=7))
    assert pods.is_ready(pod) and not pods.has_ended(pod) and pods.is_scheduled(pod)
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z"
    assert not pods.is_ready(pod) and pods.is_going(pod)
    assert not pods.is_ready(head(**ended(0)))


def test_a_pod_without_status_breaks_nothing() -> None:
    pod = head()
    del pod["status"], pod["spec"]
    assert pods.problem(pod) is None and pods.exit_code(pod) is None and not pods.is_scheduled(pod)
