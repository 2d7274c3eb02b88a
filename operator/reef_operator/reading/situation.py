"""One job at one moment: its document, the current head and its report, the workers of each pool, the last status."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from reef.api import JobSpec, JobStatus
from reef_operator import names
from reef_operator.model import Object, Observed, Progress
from reef_operator.reading import pods
from reef_operator.reading.document import Resolved, resolve
from reef_operator.reading.reports import Report, read_report

FINISHED = ("Succeeded", "Failed")


@dataclass(frozen=True)
class Situation:
    """One job at one moment; every property is computed from the observation.

    Args:
        observed: the job and its objects.
        earlier: the document as resolved from an earlier observation.
    """

    observed: Observed
    earlier: Resolved | None = None

    def renewed(self, observed: Observed) -> Situation:
        """Return the situation for a later observation; the document is validated again only if it has changed."""
        return Situation(observed, self.resolved)

    @property
    def name(self) -> str:
        """Name of the job."""
        return str(self.observed.job["metadata"]["name"])

    @cached_property
    def old(self) -> JobStatus:
        """The last written status; an empty one if there is none or it is damaged."""
        try:
            return JobStatus.model_validate(self.observed.job.get("status") or {}, by_alias=True)
        except ValueError:  # pydantic's ValidationError is a ValueError
            return JobStatus()

    @property
    def was_finished(self) -> bool:
        """Whether the status says that the job has finished."""
        return self.old.phase in FINISHED

    @cached_property
    def resolved(self) -> Resolved:
        """The effective document."""
        return resolve(self.observed, self.earlier)

    @property
    def spec(self) -> JobSpec:
        """The spec of the effective document; without one, the valid fields of the spec."""
        return self.resolved.job.spec

    @cached_property
    def heads(self) -> tuple[Object, ...]:
        """All head pods, including ended ones, with the current one last: a successful one if there is one."""
        heads = [pod for pod in self.observed.pods if pods.label(pod, names.COMPONENT_LABEL) == names.HEAD]
        return tuple(sorted(heads, key=_head_order))

    @cached_property
    def head(self) -> Object | None:
        """The current or last head pod; a pod created after the training had ended does not count."""
        if not self.heads or (self.has_succeeded and not self._ended_well):
            return None
        return self.heads[-1]

    @cached_property
    def has_succeeded(self) -> bool:
        """Whether a head trained to the end, according to its pod, the batch Job or the status."""
        counted = self.batch_condition("Complete") is not None
        return self._ended_well or counted or self.old.phase == "Succeeded"

    @property
    def _ended_well(self) -> bool:
        return bool(self.heads) and pods.exit_code(self.heads[-1]) == 0

    @cached_property
    def live_head(self) -> Object | None:
        """The head that runs or will run; None while the old one terminates and the next one does not exist."""
        if self.head is None or not _is_alive(self.head):
            return None
        return None if self.head_job and pods.is_going(self.head_job) else self.head

    @property
    def live_heads(self) -> tuple[Object, ...]:
        """Head pods that run or will run and are not being deleted; superfluous after the job has succeeded."""
        return tuple(pod for pod in self.heads if _is_alive(pod))

    @property
    def unended_heads(self) -> tuple[Object, ...]:
        """Head pods that may still write a checkpoint, including those that are being deleted."""
        return tuple(pod for pod in self.heads if not pods.has_ended(pod))

    @cached_property
    def head_job(self) -> Object | None:
        """The batch Job of the head."""
        return self.observed.children.get(("Job", names.head(self.name)))

    def batch_condition(self, kind: str) -> str | None:
        """The reason of the batch Job's condition Complete or Failed; None if it is not true."""
        for condition in ((self.head_job or {}).get("status") or {}).get("conditions") or []:
            if condition.get("type") == kind and condition.get("status") == "True":
                return str(condition.get("reason") or "")
        return None

    @property
    def head_annotations(self) -> Mapping[str, str]:
        """Annotations of the head's batch Job from its creation; empty without a batch Job."""
        return (self.head_job or {"metadata": {}})["metadata"].get("annotations") or {}

    @property
    def no_retry_exit_codes(self) -> Collection[int]:
        """Exit codes without retry, from the creation of the head's batch Job; a later edit applies to the next one."""
        noted = self.head_annotations.get(names.FINAL_CODES_ANNOTATION)
        if noted is None:
            return self.spec.fault_tolerance.no_retry_exit_codes
        return {int(code) for code in noted.split(",") if code.isdecimal()}

    @cached_property
    def deployments(self) -> Mapping[str, Object]:
        """The pools' Deployments by name."""
        owned = {name: child for (kind, name), child in self.observed.children.items() if kind == "Deployment"}
        return dict(sorted(owned.items()))

    def workers(self, pool: str | None = None) -> list[Object]:
        """Worker pods that are not being deleted, of one pool or of all, sorted by name."""
        found = [
            pod
            for pod in self.observed.pods
            if pods.label(pod, names.COMPONENT_LABEL) == names.WORKER
            and pool in (None, pods.label(pod, names.POOL_LABEL))
            and not pods.is_going(pod)
        ]
        return sorted(found, key=pods.name)

    @cached_property
    def report(self) -> Report | None:
        """The last report of the current head: its result if it has ended, otherwise its progress."""
        if self.head is None:
            return None
        if (result := pods.result(self.head)) is not None:
            return read_report(result)
        progress = self._progress_of_head
        return read_report(progress.report) if progress and progress.report is not None else None

    @property
    def asked_in_vain_since(self) -> datetime | None:
        """When the current head was first asked, if it has not answered yet; otherwise None."""
        progress = self._progress_of_head
        return progress.time if progress and progress.report is None else None

    @property
    def _progress_of_head(self) -> Progress | None:
        progress = self.observed.progress
        return progress if progress and self.head and progress.pod_uid == pods.uid(self.head) else None

    @property
    def state(self) -> str | None:
        """State of the live head: starting, waiting, training or done; None before its first report."""
        return self.report.state if self.live_head and self.report else None

    @property
    def is_lingering(self) -> bool:
        """Whether the live head has finished the training and only serves its metrics.

        A head that will be replaced also reports "done", and so does one that ends at once because the job is wrong.
        """
        report = self.report
        if self.state != "done" or report is None or report.training is None:
            return False
        return report.exit_code == 0 or report.exit_code in self.no_retry_exit_codes


def _head_order(pod: Object) -> tuple[bool, bool, datetime, str]:
    return pods.exit_code(pod) == 0, _is_alive(pod), pods.created(pod), pods.uid(pod)


def _is_alive(pod: Object) -> bool:
    return pods.exit_code(pod) is None and not pods.has_ended(pod) and not pods.is_going(pod)
