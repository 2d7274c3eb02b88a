"""Where runs are written, and what they start from."""

from __future__ import annotations

import errno
import logging
import math
import re
import secrets
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from reef.config import AlgorithmConfig
from reef.envs.failures import env_name
from reef.errors import ConfigError, DamagedCheckpointError, StorageError, WriteError
from reef.run.checkpoint import CheckpointStore, find_checkpoint, iteration_of, read_state
from reef.run.metrics import Result
from reef.run.remote.fetch import fetch_run
from reef.run.reporters.files import read_results
from reef.storage.object_store import RemoteFolder, is_uri
from reef.types import State

log = logging.getLogger(__name__)
DEFAULT_FOLDER = "~/reef_results"
FOLDER_ID = r"\d{8}-\d{6}-[0-9a-f]{6}"  # UTC time first, so that names sort by age
LOGDIR = "logdir"
DISK_FAULTS = {errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE}


class Start(NamedTuple):
    """The checkpoint that a run starts from, and what it holds."""

    checkpoint: Path
    state: State

    def within(self, folder: Path) -> Path | None:
        """The checkpoint if it is one of the run in `folder`, which goes on with it; None for that of another run."""
        return self.checkpoint if self.checkpoint.parent == folder else None


def places_of(storage_path: str | Path, local_folder: str | Path, name: str) -> tuple[Path, RemoteFolder | None]:
    """Where runs of this name are written, and where in an object store they are copied to, if they are."""
    if not is_uri(storage_path):
        return writable_folder(storage_path, name), None
    return writable_folder(local_folder, name), (RemoteFolder(str(storage_path)) / name).check()


def writable_folder(path: str | Path, name: str = "") -> Path:
    """The absolute `path`/`name`, which need not exist.

    Raises `StorageError` when nothing can be written there; where runs of this name are already and the disk has failed
    since, `WriteError`, as a retry may find it well again.
    """
    folder = place = Path(path)
    try:
        folder = place = place.expanduser().absolute() / name
        while not _is_there(place):
            place = place.parent
        with tempfile.TemporaryFile(dir=place):
            return folder
    except (OSError, RuntimeError) as error:  # RuntimeError: no user has the home ~name
        number, text = (error.errno, error.strerror) if isinstance(error, OSError) else (None, error)
        kind = WriteError if place == folder and number in DISK_FAULTS else StorageError
        raise kind(f"storage path {path}: {folder} cannot be written ({place}: {text}). Give another one.") from error


def _is_there(path: Path) -> bool:
    """Whether something has this name, be it a link to nothing; OSError where looking is not allowed."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def choose_folder(
    config: AlgorithmConfig, parent: Path, resume: bool, restore_from: str | None, remote: RemoteFolder | None
) -> tuple[Path, Start | None]:
    """The folder of this run and what it starts from, if anything; nothing is written here."""
    label = folder_label(config)
    if resume and remote:
        fetch_run(remote, parent, f"{label}_{FOLDER_ID}")
    folder = newest_folder(parent, label) if resume else None
    if resume and folder is None:
        log.warning("nothing to resume: there is no %s in %s, so that a new run begins", label, parent)
    start = newest_start(CheckpointStore(folder), config.algorithm) if folder else None
    if folder and start is None:
        log.warning("no valid checkpoint in %s: its run begins from the start", folder)
    return folder or new_folder(parent, label), start or given_start(restore_from, config.algorithm)


def given_start(restore_from: str | None, algorithm: str) -> Start | None:
    """The checkpoint of another run that this one is to start from, if it is; raises `CheckpointError`."""
    if not restore_from:
        return None
    given = find_checkpoint(restore_from)
    return Start(given, read_state(given, algorithm))


def newest_start(store: CheckpointStore, algorithm: str, before: Path | None = None) -> Start | None:
    """The newest checkpoint that can be read, of an iteration before that of `before` where one is given.

    Each damaged one that is passed over gives a warning. Raises `CheckpointError` when it is of another algorithm.
    """
    passed: set[Path] = set()
    limit = iteration_of(before.name) if before else math.inf
    while paths := [path for path in store.paths() if path not in passed and iteration_of(path.name) < limit]:
        newest = paths[-1]
        try:
            return Start(newest, read_state(newest, algorithm))
        except DamagedCheckpointError as error:
            passed.add(newest)
            if newest in store.paths():
                log.warning("skipping a checkpoint: %s", error)
            # else an earlier process goes on there, and has just removed it for a newer one
    return None


def newer_start(store: CheckpointStore, start: Start | None, algorithm: str) -> Start | None:
    """The newest checkpoint if it was written after `start`, by a process before this one; else None."""
    before = start.checkpoint if start else None
    if store.paths()[-1:] == [before]:
        return None
    newer = newest_start(store, algorithm)
    return None if newer is None or newer.checkpoint == before else newer


def with_output_in(config: AlgorithmConfig, folder: Path) -> AlgorithmConfig:
    """The settings of a run in this folder: `output="logdir"`, also of evaluation, means a folder in it."""
    changed: dict[str, Any] = {}
    if config.output == LOGDIR:
        changed["output"] = str(folder / "episodes")
    if config.evaluation_config.get("output") == LOGDIR:
        changed["evaluation_config"] = config.evaluation_config | {"output": str(folder / "evaluation_episodes")}
    return config.copy().assign(changed).checked() if changed else config


def require_place_of_output(config: AlgorithmConfig) -> None:
    """Raise ConfigError for `output="logdir"` where there is no run whose folder it would mean."""
    if LOGDIR in (config.output, config.evaluation_config.get("output")):
        raise ConfigError("output='logdir': config.build() makes no run with a folder. Give a path, or use reef train.")


def folder_label(config: AlgorithmConfig) -> str:
    """How the names of folders begin: algorithm and environment."""
    names = (config.algorithm, env_name(config.env))
    return "_".join(re.sub(r"[^A-Za-z0-9.-]+", "-", name) for name in names)


def new_folder(parent: Path, label: str) -> Path:
    """A path that does not exist yet, named after the present time."""
    return parent / f"{label}_{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def newest_folder(parent: Path, label: str) -> Path | None:
    """The folder in `parent` that was made last under this label, if there is one."""
    earlier = [path for path in parent.glob(f"{label}_*") if re.fullmatch(f"{label}_{FOLDER_ID}", path.name)]
    return max(earlier, default=None)


def last_result(folder: Path, iteration: int) -> Result | None:
    """The newest result in a folder up to this iteration, if there is one."""
    results = list(read_results(folder, until=iteration))
    return results[-1] if results else None
