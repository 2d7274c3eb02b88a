"""The state of a pod: whether it is ready, why it is not, and how its container ended."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from reef_operator import names
from reef_operator.conditions import Reason, moment
from reef_operator.model import Object

_WAITING = {
    "ErrImagePull": Reason.IMAGE_PULL_FAILED,
    "ImagePullBackOff": Reason.IMAGE_PULL_FAILED,
    "ErrImageNeverPull": Reason.IMAGE_PULL_FAILED,
    "InvalidImageName": Reason.IMAGE_PULL_FAILED,
    "ImageInspectError": Reason.IMAGE_PULL_FAILED,
    "RegistryUnavailable": Reason.IMAGE_PULL_FAILED,
    "CreateContainerConfigError": Reason.CONTAINER_CONFIG_ERROR,
    "CreateContainerError": Reason.CONTAINER_CONFIG_ERROR,
    "RunContainerError": Reason.CONTAINER_CONFIG_ERROR,
    "CrashLoopBackOff": Reason.CRASH_LOOP,
}
KILLED = 137  # exit code after SIGKILL
_LOST = {"NodeLost": Reason.NODE_LOST, "NodeShutdown": Reason.NODE_LOST, "Shutdown": Reason.NODE_LOST}
_SHOWN = 300  # last characters of a crashed container's output, which contain the error


@dataclass(frozen=True)
class Problem:
    """Why a pod is not ready."""

    reason: Reason
    message: str


def name(pod: Object) -> str:
    """Name of the pod."""
    return str(pod["metadata"]["name"])


def uid(pod: Object) -> str:
    """Uid of the pod."""
    return str(pod["metadata"]["uid"])


def created(pod: Object) -> datetime:
    """When the pod was created."""
    return moment(pod["metadata"]["creationTimestamp"])


def label(pod: Object, key: str) -> str:
    """Value of a label; "" without it."""
    return str((pod["metadata"].get("labels") or {}).get(key, ""))


def is_going(pod: Object) -> bool:
    """Whether the pod is being deleted."""
    return bool(pod["metadata"].get("deletionTimestamp"))


def is_orphaned(pod: Object) -> bool:
    """Whether the pod has no owner, as after `kubectl delete job --cascade=orphan`: only the operator deletes it."""
    return not pod["metadata"].get("ownerReferences")


def is_scheduled(pod: Object) -> bool:
    """Whether the pod has a node."""
    return bool(pod.get("spec", {}).get("nodeName"))


def has_no_node(pod: Object) -> bool:
    """Whether the scheduler finds no node for the pod, or may not look for one yet."""
    return _condition(pod, "PodScheduled").get("status") == "False"


def has_ended(pod: Object) -> bool:
    """Whether all containers of the pod have ended for good."""
    return _status(pod).get("phase") in ("Succeeded", "Failed")


def is_outlived(pod: Object) -> bool:
    """Whether the container `reef` has ended and only sidecars keep the pod alive."""
    others = (one for one in _status(pod).get("containerStatuses") or [] if one.get("name") != names.CONTAINER)
    running = any((one.get("state") or {}).get("terminated") is None for one in others)
    return exit_code(pod) is not None and running and not has_ended(pod)


def is_ready(pod: Object) -> bool:
    """Whether the pod does its work: ready, and not being deleted."""
    return ready_since(pod) is not None


def ready_since(pod: Object) -> datetime | None:
    """Time since which the pod has been ready; None if it is not."""
    condition = _condition(pod, "Ready")
    if is_going(pod) or has_ended(pod) or condition.get("status") != "True":
        return None
    return moment(condition.get("lastTransitionTime") or pod["metadata"]["creationTimestamp"])


def unstarted_since(pod: Object) -> datetime | None:
    """Time since which the pod has had a node without any started container; None if that is not so."""
    if not is_scheduled(pod) or is_going(pod) or has_ended(pod):
        return None
    states = ((container.get("state") or {}) for container in _status(pod).get("containerStatuses") or [])
    if any("running" in state or "terminated" in state for state in states):
        return None
    return moment(_condition(pod, "PodScheduled").get("lastTransitionTime") or pod["metadata"]["creationTimestamp"])


def exit_code(pod: Object) -> int | None:
    """Exit code of the container `reef`; None if it has not ended."""
    code = _ended(pod).get("exitCode")
    return int(code) if code is not None else None


def finished_at(pod: Object) -> datetime | None:
    """When the container `reef` ended."""
    time = _ended(pod).get("finishedAt")
    return moment(time) if time else None


def result(pod: Object) -> Mapping[str, Any] | None:
    """The document in the head's termination message; None if it wrote none, for example after SIGKILL."""
    try:
        document = json.loads(_ended(pod).get("message") or "")
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, Mapping) else None


def was_cut_off(pod: Object) -> bool:
    """Whether the head ended without writing its final termination message: the one found was prepared in advance."""
    said = result(pod)
    return said is not None and said.get("exitCode") != exit_code(pod)


def problem(pod: Object) -> Problem | None:
    """Return why the pod is not ready, in the words of scheduler and kubelet; None if nothing is wrong so far."""
    status = _status(pod)
    reason = str(status.get("reason") or "")
    if reason in _LOST or reason in ("Evicted", "Preempting", "Terminated"):
        return Problem(_LOST.get(reason, Reason.EVICTED), _sentence(reason, status.get("message")))
    # Also after it has been evicted for that, because it cannot terminate.
    if _is_silent(pod):
        return Problem(Reason.NODE_LOST, _of_lost_node(pod))
    disruption = _condition(pod, "DisruptionTarget")
    if disruption.get("status") == "True":
        return Problem(Reason.EVICTED, _sentence(disruption.get("reason"), disruption.get("message")))
    scheduled = _condition(pod, "PodScheduled")
    if has_no_node(pod) and scheduled.get("reason") == "Unschedulable":
        return Problem(Reason.UNSCHEDULABLE, _sentence("Unschedulable", scheduled.get("message")))
    if has_no_node(pod) and (gates := pod.get("spec", {}).get("schedulingGates")):
        return Problem(Reason.SCHEDULING_GATED, _of_gated(gates))
    if found := next((found for container in _containers(pod) if (found := _container_problem(pod, container))), None):
        return found
    if has_ended(pod) and reason:  # no container was started, as a device or the node's room was lacking
        return Problem(Reason.CONTAINER_FAILED, _sentence(reason, status.get("message")))
    return None


def _is_silent(pod: Object) -> bool:
    """Whether the cluster, not the pod, set the pod to not ready, because its node does not answer."""
    all_ready = _condition(pod, "ContainersReady").get("status") == "True"
    gated = pod.get("spec", {}).get("readinessGates")
    return all_ready and not gated and _condition(pod, "Ready").get("status") == "False" and not has_ended(pod)


def _of_gated(gates: Sequence[Mapping[str, Any]]) -> str:
    which = ", ".join(str(gate.get("name")) for gate in gates)
    return (
        f"SchedulingGated: it is not scheduled until the controller that set its scheduling gates removes them: {which}"
    )


def _of_lost_node(pod: Object) -> str:
    node, namespace = pod["spec"].get("nodeName"), pod["metadata"].get("namespace")
    place = f" -n {namespace}" if namespace else ""
    return (
        f"its node {node} does not answer: the pod may still run there. If the node is off, tell Kubernetes: "
        f"kubectl delete pod {name(pod)}{place} --force --grace-period=0"
    )


def _container_problem(pod: Object, container: Mapping[str, Any]) -> Problem | None:
    state, last = container.get("state") or {}, container.get("lastState") or {}
    waiting = state.get("waiting") or {}
    ended = state.get("terminated") or last.get("terminated") or {}
    if ended.get("reason") == "OOMKilled":
        limit = _memory_limit(pod, str(container.get("name")))
        return Problem(Reason.OUT_OF_MEMORY, f"OOMKilled: it used more memory than its limit{limit}: raise the limit")
    known = _WAITING.get(str(waiting.get("reason")))
    if known is Reason.CRASH_LOOP:
        how = _how_it_ended(ended) if ended else str(waiting.get("message") or "")
        return Problem(known, _sentence("CrashLoopBackOff", how))
    if known:
        return Problem(known, _sentence(waiting["reason"], waiting.get("message")))
    if ended.get("exitCode"):
        return Problem(Reason.CONTAINER_FAILED, f"the container {_how_it_ended(ended)}")
    return None


def _how_it_ended(ended: Mapping[str, Any]) -> str:
    code = ended.get("exitCode")
    text = str(ended.get("message") or "").strip()
    try:
        document = json.loads(text)
        text = str(document["message"]).strip() if isinstance(document, Mapping) else text
    except (ValueError, KeyError, RecursionError):
        text = text if len(text) <= _SHOWN else "…" + text[-_SHOWN:]
    signal = " (killed: SIGKILL)" if code == KILLED else ""
    return f"ended with exit code {code}{signal}" + (f": {text}" if text else "")


def _memory_limit(pod: Object, container: str) -> str:
    for declared in pod.get("spec", {}).get("containers") or []:
        if declared.get("name") == container:
            limit = ((declared.get("resources") or {}).get("limits") or {}).get("memory")
            return f" of {limit}" if limit else ""
    return ""


def _sentence(reason: Any, message: Any) -> str:
    return f"{reason}: {message}" if message else str(reason)


def _status(pod: Object) -> Mapping[str, Any]:
    return pod.get("status") or {}


def _condition(pod: Object, kind: str) -> Mapping[str, Any]:
    found = (condition for condition in _status(pod).get("conditions") or [] if condition.get("type") == kind)
    return next(found, {})


def _containers(pod: Object) -> Iterator[Mapping[str, Any]]:
    """Yield the states of all containers, init containers first."""
    yield from _status(pod).get("initContainerStatuses") or []
    yield from _status(pod).get("containerStatuses") or []


def _ended(pod: Object) -> Mapping[str, Any]:
    for container in _status(pod).get("containerStatuses") or []:
        if container.get("name") == names.CONTAINER:
            ended = (container.get("state") or {}).get("terminated")
            return ended or {}
    return {}
