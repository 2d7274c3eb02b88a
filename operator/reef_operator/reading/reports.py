"""The head's reports, from /progress and its termination message; validated, because users' code can write them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard, TypeVar

from reef.api.status import CheckpointStatus, EvaluationStatus, StatusModel, TrainingStatus, TrialsStatus, TrialStatus
from reef_operator.conditions import encodable

MAX_PART = 4096  # characters of one part of a report as JSON, because it is written to the API server
LARGEST = 2**63
Part = TypeVar("Part", bound=StatusModel)


@dataclass(frozen=True)
class Report:
    """One report of a head; missing or malformed fields are None."""

    state: str | None = None  # starting, waiting, training, done
    exit_code: int | None = None  # once it is known
    message: str = ""
    storage_problem: str = ""  # why checkpoints do not reach the object store
    worker_problem: str = ""  # why a rollout worker failed that has not sampled since
    workers_recreated: int = 0
    training: TrainingStatus | None = None
    evaluation: EvaluationStatus | None = None
    checkpoint: CheckpointStatus | None = None
    best_trial: TrialStatus | None = None
    trials: TrialsStatus | None = None


def read_report(document: Mapping[str, Any]) -> Report:
    """Parse a report from a JSON document."""
    state = document.get("state")
    code, recreated = document.get("exitCode"), document.get("workersRecreated")
    return Report(
        state=state if isinstance(state, str) else None,
        exit_code=code if _is_number(code) else None,
        message=str(document.get("message") or ""),
        storage_problem=str(document.get("storageProblem") or ""),
        worker_problem=str(document.get("workerProblem") or ""),
        workers_recreated=max(0, recreated) if _is_number(recreated) else 0,
        training=_part(TrainingStatus, document.get("training")),
        evaluation=_part(EvaluationStatus, document.get("evaluation")),
        checkpoint=_part(CheckpointStatus, document.get("checkpoint")),
        best_trial=_part(TrialStatus, document.get("bestTrial")),
        trials=_part(TrialsStatus, document.get("trials")),
    )


def _is_number(value: Any) -> TypeGuard[int]:
    """Whether a value is an integer in the API server's range."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < LARGEST


def _part(model: type[Part], document: Any) -> Part | None:
    if not isinstance(document, Mapping):
        return None
    try:
        part = model.model_validate(_rounded(_storable(document)), by_alias=True)
        fits = len(part.model_dump_json()) <= MAX_PART
    except (ValueError, RecursionError):  # pydantic's ValidationError is a ValueError
        return None
    return part if fits else None


def _rounded(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part with its numbers rounded to six digits for display, except the settings of a trial."""
    return {key: float(f"{value:.6g}") if isinstance(value, float) else value for key, value in document.items()}


def _storable(value: Any) -> Any:
    """Return a JSON value without what the API server refuses: NaN, infinity, huge integers, unpaired surrogates."""
    if isinstance(value, int) and abs(value) >= LARGEST:
        return None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, Mapping):
        return {encodable(key): _storable(inner) for key, inner in value.items()}
    return [_storable(inner) for inner in value] if isinstance(value, list) else value
