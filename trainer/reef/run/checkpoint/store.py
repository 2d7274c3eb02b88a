"""The checkpoints of one run in its folder: their names, which are kept, and the newest that is whole."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from reef.config.loading import load
from reef.errors import CheckpointError, DamagedCheckpointError
from reef.run.checkpoint.files import (
    MANIFEST,
    check_place,
    checkpoint_there,
    read_metadata,
    remove_checkpoint,
    verify_checkpoint,
    write_checkpoint,
)
from reef.storage.object_store import is_uri
from reef.types import State

PREFIX = "checkpoint_"
# Those that were downloaded from an object store are named after their writer, too.
NAME = re.compile(f"{PREFIX}[0-9]{{1,18}}(-[0-9a-f]{{8}})?")

log = logging.getLogger(__name__)


def find_checkpoint(path: Any) -> Path:
    """Return `path` if it is a checkpoint, or the newest valid one in that folder; raises `CheckpointError`.

    Where a save was killed before the new one took the name, `path` still means the one that had stepped aside.
    For a place in an object store, such as s3://bucket/folder, returns a copy that lasts as long as this process. A
    `Checkpoint` of Ray Tune stands for the folder that it names, of which it makes a copy if that is not here.
    """
    if hasattr(path, "to_directory"):
        path = path.path if os.path.isdir(path.path) else path.to_directory()
    if is_uri(path):
        copied: Path = load("reef.run.remote.fetch:copied_checkpoint")(str(path))
        return copied
    place = Path(os.path.expanduser(path))
    if checkpoint_there(place) != place:
        log.warning("%s is not there, as a save over it was cut off or goes on: taking the one before", place)
    if (
        os.path.isdir(place)
        and not os.path.exists(place / MANIFEST)
        and (last := CheckpointStore(place).newest_valid())
    ):
        return last
    check_place(place)
    return place


class CheckpointStore:
    """The checkpoints of one run: `checkpoint_<iteration>` in one directory, of which `keep` stay.

    Those with the best `score_attribute` stay (prefix "min-": the smallest), of equals the newer one, and the newest
    in any case. Without `keep` (None or 0) all stay.
    """

    def __init__(
        self, directory: str | Path, keep: int | None = None, score_attribute: str = "training_iteration"
    ) -> None:
        self.directory = Path(directory)
        self.keep = keep
        self.smaller_is_better = score_attribute.startswith("min-")
        self.pinned: Path | None = None  # stays for now, as it is being copied

    def save(self, state: State, metadata: dict[str, Any], score: float | None = None) -> Path:
        """Write a checkpoint named after `metadata["iteration"]`, then delete those that need not be kept."""
        self.clean()
        path = self.directory / f"{PREFIX}{metadata['iteration']:06d}"
        write_checkpoint(path, state, {**metadata, "score": score})
        self._prune(newest=path)
        return path

    def paths(self) -> list[Path]:
        """All checkpoints, oldest first, valid or not; also where nothing took the name of one that stepped aside."""
        names = {path.name for path in self.directory.glob(f"{PREFIX}*") if path.is_dir()}
        names |= {_name_of(aside) for aside in self.directory.glob(f".{PREFIX}*.old")}
        return [self.directory / name for name in sorted(filter(is_checkpoint_name, names), key=iteration_of)]

    def newest_valid(self) -> Path | None:
        """The newest checkpoint whose every byte is right; each damaged one that is passed over gives a warning."""
        return next(_valid(reversed(self.paths())), None)

    def best(self) -> Path | None:
        """The valid checkpoint with the best score, the newer of two equal ones."""
        return next(_valid([self.directory / name for name in self.by_rank(self.scores())]), None)

    def clean(self) -> None:
        """Remove what killed saves left behind."""
        for leftover in self.directory.glob(f".{PREFIX}*.tmp"):
            shutil.rmtree(leftover, ignore_errors=True)
        for aside in self.directory.glob(f".{PREFIX}*.old"):
            if not is_checkpoint_name(_name_of(aside)):
                continue
            name = self.directory / _name_of(aside)
            remove_checkpoint(aside) if name.exists() else aside.rename(name)

    def scores(self) -> dict[str, float | None]:
        """Names of those with readable metadata, and their scores."""
        found: dict[str, float | None] = {}
        for path in self.paths():
            with contextlib.suppress(CheckpointError):
                found[path.name] = read_metadata(path).get("score")
        return found

    def by_rank(self, scores: Mapping[str, float | None]) -> list[str]:
        """These names, the best first, of equals the newer one."""
        worst = math.inf if self.smaller_is_better else -math.inf
        ranks = {name: worst if score is None else float(score) for name, score in scores.items()}
        newest_first = sorted(ranks, key=iteration_of, reverse=True)
        return sorted(newest_first, key=ranks.__getitem__, reverse=not self.smaller_is_better)

    def _prune(self, newest: Path) -> None:
        if self.keep:
            for name in self.by_rank(self.scores())[self.keep :]:
                path = self.directory / name
                if path not in (newest, self.pinned) and not path.is_symlink():  # what is elsewhere is not the run's
                    remove_checkpoint(path)


def is_checkpoint_name(name: str) -> bool:
    """Whether a run's checkpoint may have this name."""
    return NAME.fullmatch(name) is not None


def iteration_of(name: str) -> int:
    """The iteration after which the checkpoint of this name was written."""
    return int(name.removeprefix(PREFIX).partition("-")[0])


def _valid(paths: Iterator[Path] | list[Path]) -> Iterator[Path]:
    for path in paths:
        try:
            verify_checkpoint(path)
        except DamagedCheckpointError as error:
            log.warning("skipping a checkpoint: %s", error)
        else:
            yield path


def _name_of(aside: Path) -> str:
    return aside.name.removeprefix(".").removesuffix(".old")
