"""From a job document with `spec.tune` to its sweep: for `reef run` and for the head of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from reef.job.settings import checkpoint_settings

if TYPE_CHECKING:
    from reef.api import RLTrainingJob
    from reef.config import AlgorithmConfig
    from reef.job.capacity import Room
    from reef.run.prometheus import RunState
    from reef.run.signals import StopSignals
    from reef.sweep.plan import Plan
    from reef.sweep.progress import SweepSummary


def checked_plan(job: RLTrainingJob, config: AlgorithmConfig, stop: Mapping[str, float]) -> Plan:
    """The trials of a job over its settings; ConfigError names everything that is wrong."""
    from reef.sweep.plan import Plan

    assert job.spec.tune is not None, "a sweep was asked for"
    return Plan(job.spec.tune, config, stop)


def check_room(plan: Plan, pods: list[Room]) -> None:
    """Raise ResourceError for a trial that has no room in all pods together, as it would wait for ever."""
    from reef.job.capacity import check_trial

    for trial in plan.trials:
        check_trial(plan.config(trial), pods)


def run_job_sweep(
    job: RLTrainingJob,
    plan: Plan,
    *,
    stop: Mapping[str, float],
    name: str,
    storage_path: str | Path,
    local_folder: str | Path | None = None,
    resume: bool,
    run_state: RunState | None,
    signals: StopSignals | None = None,
    stream: TextIO | None = None,
) -> SweepSummary:
    """Run the trials in the Ray that this process has joined."""
    from reef.distributed.sweep import run_sweep
    from reef.run.folders import DEFAULT_FOLDER

    return run_sweep(
        plan,
        stop=stop,
        checkpoint=checkpoint_settings(job),
        name=name,
        storage_path=storage_path,
        local_folder=local_folder or DEFAULT_FOLDER,
        resume=resume,
        restore_from=job.spec.restore_from,
        run_state=run_state,
        signals=signals,
        max_failures=job.spec.fault_tolerance.backoff_limit,
        stream=stream,
    )
