"""The document that a job runs by: the requested one, validated, with immutable fields as they were at creation."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from reef.api import RLTrainingJob, job_from_document
from reef.api.job import API_VERSION, KIND
from reef.errors import ConfigError
from reef_operator import names
from reef_operator.conditions import ConditionType, Finding, Reason
from reef_operator.model import Object, Observed, Settings
from reef_operator.reading.forbidden import violations

IMMUTABLE = ("algorithm", "environment.name", "restoreFrom", "checkpoint.storage", "externalInput")
ACCEPTED = ("config", "stop", "tune")  # other versions may know more keys here, or accept more values
_LIFE = (  # fields that decide about the job's life, apart from what is trained and on which image
    *("checkpoint", "restoreFrom", "workers", "replicas", "faultTolerance", "suspend", "cleanup"),
    *("activeDeadlineSeconds", "preRunningDeadlineSeconds", "ttlSecondsAfterFinished"),
)
_STAND_IN = {"algorithm": "PPO", "environment": {"name": "unknown"}, "stop": {"training_iteration": 1}}
IMAGE = ("image", "imagePullPolicy", "imagePullSecrets")  # workers run the same image as the head that they join


@dataclass(frozen=True, kw_only=True)
class Sources:
    """The inputs from which the effective document is made."""

    identity: Object  # name, namespace and uid of the job
    spec: Any  # the requested one
    refusal: str | None  # why the requested spec is too large to be validated
    stored: dict[str, Any] | None  # the content of the ConfigMap, not validated; None without a document
    has_head_job: bool
    is_running: bool  # it has a batch Job or a pod
    settings: Settings


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """The effective document."""

    document: Object | None  # None: both the requested and the former document are invalid, so no object can be created
    job: RLTrainingJob  # the same, validated; without a document: its valid fields, to take care of what runs
    accepted: Finding  # whether the requested document is valid
    sources: Sources


def resolve(observed: Observed, earlier: Resolved | None = None) -> Resolved:
    """Return the effective document: the requested one if it is valid, otherwise the one that the job was made from.

    Validation takes most of the time of a reconcile, so the former document is validated only if it differs.

    Args:
        observed: the job and its objects.
        earlier: the result for an earlier observation; it is returned if its sources are the same.
    """
    sources = _sources(observed)
    if earlier is not None and earlier.sources == sources:
        return earlier
    former = sources.stored
    if former is not None and violations(former["spec"], sources.settings.forbidden):
        former = None
    asked = _asked(sources, former)
    if isinstance(asked, Resolved) and asked.document == former:
        return asked  # so the former document is valid too
    kept = None if former is None else _still_valid(former)
    if former is not None and kept is None:
        asked = _asked(sources, None)  # again, without the fields taken from the former document
    return asked if isinstance(asked, Resolved) else _refused(sources, kept, asked)


def _sources(observed: Observed) -> Sources:
    metadata, children = observed.job["metadata"], observed.children
    has_head_job = ("Job", names.head(metadata["name"])) in children
    return Sources(
        identity={key: metadata[key] for key in ("name", "namespace", "uid")},
        spec=observed.job.get("spec"),
        refusal=observed.job.get(names.REFUSAL),
        stored=stored_document(children.get(("ConfigMap", names.document(metadata["name"])))),
        has_head_job=has_head_job,
        is_running=has_head_job or bool(observed.pods),
        settings=observed.settings,
    )


def stored_document(config_map: Object | None) -> dict[str, Any] | None:
    """Return the content of a job's ConfigMap, not validated apart from its `spec`, a mapping; None without one."""
    try:
        document = json.loads(((config_map or {}).get("data") or {})[names.DOCUMENT_KEY])
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) and isinstance(document.get("spec"), dict) else None


def _still_valid(former: dict[str, Any]) -> tuple[dict[str, Any], RLTrainingJob] | None:
    """Return the former document with its job; None if it is not valid any more."""
    try:
        return former, _folded(job_from_document(former, accepted=ACCEPTED))
    except ConfigError:
        return None


def _asked(sources: Sources, former: Mapping[str, Any] | None) -> Resolved | str:
    """Return the requested document with immutable fields as in the former one; or why it is invalid."""
    if sources.refusal is not None:
        return sources.refusal
    spec = copy.deepcopy(sources.spec)
    same = _unchanged(spec, former)
    edits: list[str] = []
    _fill_in_image(sources, spec, former)
    try:
        job = job_from_document(_document(sources, spec), "the document", accepted=same)
        if problems := [*violations(spec, sources.settings.forbidden), *_unavailable(job, sources, former)]:
            return "; ".join(problems)
        if restored := _restore(sources, spec, former):
            edits = [_edit(*change) for change in restored if change[0] in IMMUTABLE]
            job = job_from_document(_document(sources, spec), "the document", accepted=same)
    except ConfigError as error:  # a restored field may contradict a changed one
        return "\n".join([*edits, str(error)])
    accepted = Finding(ConditionType.DOCUMENT_ACCEPTED, True, Reason.ACCEPTED)
    if edits:
        accepted = Finding(ConditionType.DOCUMENT_ACCEPTED, False, Reason.IMMUTABLE_FIELD, "; ".join(edits))
    return Resolved(document=_document(sources, spec), job=_folded(job), accepted=accepted, sources=sources)


def _unavailable(job: RLTrainingJob, sources: Sources, former: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield what this installation cannot do for a new job; an existing one keeps what it has."""
    external = job.spec.external_input
    if external and external.ingress and former is None and sources.settings.ingress is None:
        yield (
            f"spec.externalInput.ingress.host is {external.ingress.host!r}, and this operator makes no Ingresses. An "
            "administrator can allow them with ingress.enabled=true in the chart's values; or replace it by an Ingress "
            f"of your own to the Service {names.policy_server(sources.identity['name'])}, with the pods of its "
            "controller in from"
        )


def _document(sources: Sources, spec: Any) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": sources.identity, "spec": spec}


def _unchanged(spec: Any, former: Mapping[str, Any] | None) -> list[str]:
    """Return the fields of `ACCEPTED` that have not changed since the former document."""
    if former is None or not isinstance(spec, Mapping):
        return []
    return [field for field in ACCEPTED if spec.get(field) == former["spec"].get(field)]


def _fill_in_image(sources: Sources, spec: Any, former: Mapping[str, Any] | None) -> None:
    """Set the image if the document names none: the running head's image, otherwise the default."""
    if not isinstance(spec, dict):
        return
    if former is not None and sources.has_head_job:
        spec |= {field: former["spec"][field] for field in IMAGE if field in former["spec"] and field not in spec}
    else:
        spec |= image_of_next_head(spec, sources.settings)


def image_of_next_head(spec: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """Return the fields of the image with which a new head would be created: those of the spec, or the default."""
    given = {field: spec[field] for field in IMAGE if field in spec}
    if given.get("image") is not None:
        return given
    return {"imagePullPolicy": settings.image_pull_policy, **given, "image": settings.trainer_image}


def _restore(sources: Sources, spec: dict[str, Any], former: Mapping[str, Any] | None) -> list[tuple[str, Any, Any]]:
    """Restore fields that must not change, now or at all; return path, new and old value of those that had changed."""
    if former is None:
        return []
    changes = []
    for path in (*IMMUTABLE, *IMAGE) if sources.has_head_job else IMMUTABLE:
        parent, _, field = path.rpartition(".")
        new_in = spec.get(parent, {}) if parent else spec
        old_in = former["spec"].get(parent) if parent else former["spec"]
        new, old = new_in.get(field), old_in.get(field) if isinstance(old_in, Mapping) else None
        if new == old:
            continue
        changes.append((path, new, old))
        if old is None:
            new_in.pop(field, None)
        else:
            (spec.setdefault(parent, {}) if parent else spec)[field] = copy.deepcopy(old)
    return changes


def _edit(path: str, new: Any, old: Any) -> str:
    return (
        f"spec.{path} cannot be changed from {_shown(old)} to {_shown(new)}: the job goes on with {_shown(old)}; "
        "set it back, or create another job"
    )


def _shown(value: Any) -> str:
    return "none" if value is None else json.dumps(value)


def _folded(job: RLTrainingJob) -> RLTrainingJob:
    """Return the job with `spec.replicas`, which autoscalers set, as the first pool's own.

    The document keeps both: a head that begins anew does not take a job for wrong that was only scaled down.
    """
    replicas = job.spec.replicas
    if replicas is None:
        return job
    first, *others = job.spec.workers
    changes = {"replicas": replicas}
    if (first.min_replicas or 0) > replicas:  # scaled below its minimum on purpose
        changes["min_replicas"] = replicas
    return _with(job, replicas=None, workers=[first.model_copy(update=changes), *others])


def _with(job: RLTrainingJob, **fields: Any) -> RLTrainingJob:
    """Return a job with other values for some fields of its spec, without validation."""
    return job.model_copy(update={"spec": job.spec.model_copy(update=fields)})


def _readable(*specs: Any) -> RLTrainingJob:
    """Return a job with every valid field of the specs; the later of two values wins."""
    document: dict[str, Any] = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "job"}, "spec": _STAND_IN}
    job = job_from_document(document)
    for spec in specs:
        for field in _LIFE:
            if not isinstance(spec, Mapping) or field not in spec:
                continue
            more = {**document, "spec": {**document["spec"], field: spec[field]}}
            with contextlib.suppress(ConfigError):
                job, document = job_from_document(more), more
    return _folded(job)


def _refused(sources: Sources, kept: tuple[dict[str, Any], RLTrainingJob] | None, problem: str) -> Resolved:
    """Return the result for an invalid document: the job goes on with the former one, and can still be suspended.

    If the former one is invalid too (damaged, or written by a newer operator), the operator takes care of what runs.
    """
    text, spec = " ".join(problem.split()), sources.spec
    sentence = f"{text}{'' if text.endswith(('.', '?')) else '.'}"
    if kept is None:
        if sources.is_running:
            text = f"{sentence} What runs goes on, and nothing is made or changed until the document is correct"
        document, job = None, _readable((sources.stored or {}).get("spec"), spec)
    else:
        text = f"{sentence} The job goes on by the document before this change"
        document, job = kept
        if isinstance(spec, Mapping) and isinstance(suspend := spec.get("suspend"), bool):
            document = {**document, "spec": {**document["spec"], "suspend": suspend}}
            job = _with(job, suspend=suspend)
    accepted = Finding(ConditionType.DOCUMENT_ACCEPTED, False, Reason.INVALID_DOCUMENT, text)
    return Resolved(document=document, job=job, accepted=accepted, sources=sources)
