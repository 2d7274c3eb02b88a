"""The document that a job runs by: what is asked for, checked, with immutable fields as they were at its creation."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reef.api import RLTrainingJob, job_from_document
from reef.api.job import API_VERSION, KIND
from reef.errors import ConfigError
from reef_operator import names
from reef_operator.conditions import ConditionType, Finding, Reason
from reef_operator.model import Object, Observed
from reef_operator.reading.forbidden import violations

IMMUTABLE = ("algorithm", "environment.name", "restoreFrom", "checkpoint.storage")
ACCEPTED = ("config", "stop", "tune")  # what another version may know more of, or take more of
_LIFE = (  # what the job's life depends on, beside what is trained and on which image
    *("checkpoint", "restoreFrom", "workers", "replicas", "faultTolerance", "suspend", "cleanup"),
    *("activeDeadlineSeconds", "preRunningDeadlineSeconds", "ttlSecondsAfterFinished"),
)
_STAND_IN = {"algorithm": "PPO", "environment": {"name": "unknown"}, "stop": {"training_iteration": 1}}
_IMAGE = ("image", "imagePullPolicy", "imagePullSecrets")  # workers run the image of the head that they join


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """The document to act by."""

    document: Object | None  # None: it is wrong and so is the one before, so that nothing can be made by it
    job: RLTrainingJob  # the same, validated; without a document what can be read of it, to look after what runs
    accepted: Finding  # what is to be said of the one that was asked for


def resolve(observed: Observed) -> Resolved:
    """Return the document to act by: the one asked for where it is valid, else the one the job was made from."""
    kept = _kept(observed)
    spec = copy.deepcopy(observed.job.get("spec"))
    if names.REFUSAL in observed.job:
        return _refused(observed, kept, spec, observed.job[names.REFUSAL])
    same = _unchanged(spec, kept)
    try:
        job_from_document(_document(observed, spec), "the document", accepted=same)
    except ConfigError as error:
        return _refused(observed, kept, spec, str(error))
    assert isinstance(spec, dict), "validated"
    if problems := violations(spec, observed.settings.forbidden):
        return _refused(observed, kept, spec, "; ".join(problems))
    edits = [] if kept is None else _restore(spec, kept["spec"])
    _fold_replicas(spec)
    _settle_image(observed, spec, kept)
    document = _document(observed, spec)
    try:
        job = job_from_document(document, "the document", accepted=same)
    except ConfigError as error:  # a field that was put back contradicts one that was changed
        return _refused(observed, kept, spec, "\n".join([*edits, str(error)]))
    accepted = Finding(ConditionType.DOCUMENT_ACCEPTED, True, Reason.ACCEPTED)
    if edits:
        accepted = Finding(ConditionType.DOCUMENT_ACCEPTED, False, Reason.IMMUTABLE_FIELD, "; ".join(edits))
    return Resolved(document=document, job=job, accepted=accepted)


def _unchanged(spec: Any, kept: Mapping[str, Any] | None) -> list[str]:
    """The fields that were accepted as they are."""
    if kept is None or not isinstance(spec, Mapping):
        return []
    return [field for field in ACCEPTED if spec.get(field) == kept["spec"].get(field)]


def _document(observed: Observed, spec: Any) -> dict[str, Any]:
    metadata = {key: observed.job["metadata"][key] for key in ("name", "namespace", "uid")}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}


def _kept(observed: Observed) -> dict[str, Any] | None:
    """Return the document in the ConfigMap; None before it is made, or when it is damaged or forbidden by now."""
    document = _stored(observed)
    try:
        job_from_document(document, accepted=ACCEPTED)
    except ConfigError:
        return None
    if violations(document["spec"], observed.settings.forbidden):
        return None
    return dict(document)


def _stored(observed: Observed) -> Any:
    """Return what the ConfigMap holds; None where it holds no JSON."""
    config_map = observed.children.get(("ConfigMap", names.document(observed.job["metadata"]["name"])))
    try:
        return json.loads(((config_map or {}).get("data") or {})[names.DOCUMENT_KEY])
    except (KeyError, TypeError, ValueError, RecursionError):
        return None


def _readable(*specs: Any) -> RLTrainingJob:
    """Return a job with every field of the specs that is valid; of two values the later one's."""
    document: dict[str, Any] = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "job"}, "spec": _STAND_IN}
    job = job_from_document(document)
    for spec in specs:
        for field in _LIFE:
            if not isinstance(spec, Mapping) or field not in spec:
                continue
            more = {**document, "spec": {**document["spec"], field: spec[field]}}
            with contextlib.suppress(ConfigError):
                job, document = job_from_document(more), more
    return job


def _refused(observed: Observed, kept: dict[str, Any] | None, spec: Any, problem: str) -> Resolved:
    """Return what a wrong document leads to: the job goes on by the former one, and can still be suspended.

    Where the former one is wrong too (for an older operator, or it was lost), what runs is looked after.
    """
    text = " ".join(problem.split())
    sentence = f"{text}{'' if text.endswith(('.', '?')) else '.'}"
    if kept is None:
        if observed.pods or ("Job", names.head(observed.job["metadata"]["name"])) in observed.children:
            text = f"{sentence} What runs goes on, and nothing is made or changed until the document is correct"
        stored = _stored(observed)
        return Resolved(
            document=None,
            job=_readable(stored.get("spec") if isinstance(stored, Mapping) else None, spec),
            accepted=Finding(ConditionType.DOCUMENT_ACCEPTED, False, Reason.INVALID_DOCUMENT, text),
        )
    if isinstance(spec, Mapping) and isinstance(spec.get("suspend"), bool):
        kept["spec"]["suspend"] = spec["suspend"]
    return Resolved(
        document=kept,
        job=job_from_document(kept, accepted=ACCEPTED),
        accepted=Finding(
            ConditionType.DOCUMENT_ACCEPTED,
            False,
            Reason.INVALID_DOCUMENT,
            f"{sentence} The job goes on by the document before this change",
        ),
    )


def _restore(spec: dict[str, Any], kept: Mapping[str, Any]) -> list[str]:
    """Put immutable fields back to their values at the job's creation; return a sentence for each that was changed."""
    edits = []
    for path in IMMUTABLE:
        parent, _, field = path.rpartition(".")
        new_in = spec.get(parent, {}) if parent else spec
        old_in = (kept.get(parent) or {}) if parent else kept
        new, old = new_in.get(field), old_in.get(field)
        if new == old:
            continue
        edits.append(
            f"spec.{path} cannot be changed from {_shown(old)} to {_shown(new)}: the job goes on with {_shown(old)}; "
            "set it back, or create another job"
        )
        if old is None:
            new_in.pop(field, None)
        else:
            (spec.setdefault(parent, {}) if parent else spec)[field] = copy.deepcopy(old)
    return edits


def _shown(value: Any) -> str:
    return "none" if value is None else json.dumps(value)


def _fold_replicas(spec: dict[str, Any]) -> None:
    """Write `spec.replicas`, which autoscalers set, into the first pool."""
    replicas = spec.pop("replicas", None)
    if replicas is None:
        return
    pool = spec["workers"][0]
    pool["replicas"] = replicas
    if (pool.get("minReplicas") or 0) > replicas:  # scaled below its minimum on purpose
        pool["minReplicas"] = replicas


def _settle_image(observed: Observed, spec: dict[str, Any], kept: Mapping[str, Any] | None) -> None:
    """Write the image of all pods into the document: the one of the head that runs, while one does."""
    if kept and ("Job", names.head(observed.job["metadata"]["name"])) in observed.children:
        for field in _IMAGE:
            spec.pop(field, None)
            if field in kept["spec"]:
                spec[field] = kept["spec"][field]
    elif not spec.get("image"):
        spec["image"] = observed.settings.trainer_image
        spec.setdefault("imagePullPolicy", observed.settings.image_pull_policy)
