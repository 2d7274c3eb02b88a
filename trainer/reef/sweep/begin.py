"""Where a sweep begins or goes on: its record, and the checkpoint of another run that its trials begin with."""

from __future__ import annotations

import logging
from pathlib import Path

from reef.run.folders import FOLDER_ID, folder_label, given_start, new_folder, newest_folder
from reef.run.process.identity import Claim
from reef.run.remote.fetch import fetch_sweep
from reef.storage.object_store import RemoteFolder
from reef.sweep.plan import Plan
from reef.sweep.record import Record

log = logging.getLogger(__name__)


def begin(
    plan: Plan, parent: Path, claim: Claim, *, resume: bool, remote: RemoteFolder | None, restore_from: str | None
) -> tuple[Record, str | None]:
    """The record of the sweep that is resumed, whose folder is this process's from now on, or of a new one.

    Beside it where the checkpoint lies that trials without one of their own begin with: one for all of them.

    Raises:
        CheckpointError: it is missing, damaged or of another algorithm; a process that writes in the folder goes on.
        StorageError: the folder cannot be read or written.
    """
    label, scheme = f"sweep_{folder_label(plan.base)}", plan.tune
    if resume and remote:
        fetch_sweep(remote, parent, f"{label}_{FOLDER_ID}")
    if resume and (folder := newest_folder(parent, label)) is not None:
        start = restore_from
        if (record := Record.read(folder, scheme.metric, scheme.mode)) is not None:
            start = common_start(record, restore_from, plan.base.algorithm)
        claim.take(folder)
        if (record := Record.read(folder, scheme.metric, scheme.mode)) is not None:  # with what was written meanwhile
            before, now = ([one.drawn for one in trials] for trials in (record.trials.values(), plan.trials))
            if plan.is_drawn_at_once and plan.base.seed is not None and before != now:
                log.warning("%s: the trials are those that were drawn at first, not those of the document", folder)
            fetched = start != restore_from  # and is not fetched twice
            return record, start if fetched else common_start(record, restore_from, plan.base.algorithm)
    if resume:
        log.warning("nothing to resume: there is no %s in %s, so that a new sweep begins", label, parent)
    record = Record(new_folder(parent, label), scheme.metric, scheme.mode, plan.trials)
    return record, common_start(record, restore_from, plan.base.algorithm)


def common_start(record: Record, restore_from: str | None, algorithm: str) -> str | None:
    """The checkpoint, on this machine; `restore_from` as it is where no trial begins from the start."""
    if all(trial.checkpoint for trial in record.in_state("waiting")):
        return restore_from
    start = given_start(restore_from, algorithm)
    return str(start.checkpoint) if start else None
