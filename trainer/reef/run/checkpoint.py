"""Checkpoints: a directory of safetensors and JSON that is either there as a whole or not at all.

    checkpoint_000010/
        arrays.safetensors   every numpy array of the state
        state.json           the rest of the state; {"$array": key} stands where an array was
        metadata.json        algorithm, config, iteration, Reef's version, when
        manifest.json        format version, size and sha256 of the files above; written last

All is written and flushed in a hidden sibling directory, which then takes its name by one rename. Nothing is pickled.
A checkpoint that is to be replaced steps aside to the hidden sibling `.<name>.old` before that rename and is deleted
after it: at any moment one of the two is whole, and who reads `<name>` gets that one, also while it is replaced.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

import reef
from reef.config.loading import load
from reef.errors import CheckpointError, StorageError, WriteError
from reef.trees import put_arrays_back, take_arrays_out
from reef.types import Array, State

FORMAT = "reef-checkpoint"
FORMAT_VERSION = 2
ARRAYS, STATE, METADATA, MANIFEST = "arrays.safetensors", "state.json", "metadata.json", "manifest.json"
PREFIX = "checkpoint_"
READ_ATTEMPTS = 10
USE_ANOTHER = "Use another checkpoint, such as the one before."

T = TypeVar("T")

log = logging.getLogger(__name__)


def write_checkpoint(
    path: str | Path, state: State, metadata: dict[str, Any] | None = None, *, kind: str = "algorithm"
) -> None:
    """Write `state` to the directory `path`, replacing a checkpoint that is there.

    Raises `CheckpointError` for a value that a checkpoint cannot hold and `WriteError` when the disk refuses; in
    both cases `path` is as it was.
    """
    path = Path(path).absolute()
    if path.exists() and not (path / MANIFEST).exists() and any(path.iterdir() if path.is_dir() else [path]):
        raise StorageError(f"{path} exists and is no checkpoint: it is left alone. Name another directory.")
    arrays: dict[str, Array] = {}
    tree = take_arrays_out(state, "", arrays)
    temporary = path.with_name(f".{path.name}{_writer(os.getpid())}")
    stamp = {"reef_version": reef.__version__, "time": datetime.now(UTC).isoformat(timespec="seconds")}
    try:
        _clean_after_the_dead(path.parent)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        save_file(arrays, temporary / ARRAYS)
        _write_json(temporary / STATE, tree)
        _write_json(temporary / METADATA, {**stamp, **(metadata or {})})
        files = {name: _fingerprint(temporary / name) for name in (ARRAYS, STATE, METADATA)}
        manifest = {"format": FORMAT, "version": FORMAT_VERSION, "kind": kind, "files": files}
        _write_json(temporary / MANIFEST, manifest)
        for name in (*files, MANIFEST, "."):
            _flush(temporary / name)
        _move_into_place(temporary, path)
    except (OSError, SafetensorError) as error:
        raise WriteError(
            f"cannot write the checkpoint {path}: {error}. Free space there or choose another folder (--storage-path)."
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def read_checkpoint(path: str | Path, *, kind: str = "algorithm") -> tuple[State, dict[str, Any]]:
    """Return (state, metadata) of a checkpoint after checking every byte of it.

    Raises `CheckpointError` naming the file that is missing, damaged or foreign.
    """
    return _undisturbed(Path(path), lambda place: _read(place, kind))


def _read(path: Path, kind: str) -> tuple[State, dict[str, Any]]:
    _verify(path, kind)
    try:
        state = put_arrays_back(_read_json(path / STATE), load_file(path / ARRAYS))
    except (SafetensorError, KeyError) as error:
        raise CheckpointError(f"{path / ARRAYS} does not fit {STATE}: {error}. {USE_ANOTHER}") from error
    return state, read_metadata(path)


def read_state(path: Path, algorithm: str) -> State:
    """The state in a checkpoint; raises `CheckpointError` also when another algorithm wrote it."""
    state, metadata = read_checkpoint(path)
    if metadata.get("algorithm") != algorithm:
        raise CheckpointError(
            f"{path} was written by {metadata.get('algorithm')}, but {algorithm} is to be trained: "
            "give a checkpoint of the same algorithm."
        )
    return state


def read_metadata(path: str | Path) -> dict[str, Any]:
    """Return the metadata of a checkpoint (algorithm, config, iteration, ...) without reading its state."""
    metadata: dict[str, Any] = _undisturbed(Path(path), lambda place: _read_json(place / METADATA))
    return metadata


def verify_checkpoint(path: Path) -> dict[str, Any]:
    """Check format version, sizes and checksums and return the manifest; raises `CheckpointError`."""
    return _undisturbed(path, _verify)


def _verify(path: Path, kind: str = "algorithm") -> dict[str, Any]:
    manifest = _read_manifest(path)
    if (found := manifest["kind"]) != kind:
        raise CheckpointError(f"{path} is a checkpoint of kind {found!r}, not {kind!r}: give one of that kind.")
    for name, expected in manifest["files"].items():
        file = path / name
        if not file.is_file():
            raise CheckpointError(f"{file} is missing. {USE_ANOTHER}")
        if (size := file.stat().st_size) != expected["bytes"]:
            raise CheckpointError(f"{file} is cut off: {size} bytes instead of {expected['bytes']}. {USE_ANOTHER}")
        if _fingerprint(file) != expected:
            raise CheckpointError(f"{file} is damaged: its sha256 differs from {MANIFEST}. {USE_ANOTHER}")
    return manifest


def find_checkpoint(path: str | Path) -> Path:
    """Return `path` if it is a checkpoint, or the newest valid one in that folder; raises `CheckpointError`.

    Where a save was killed before the new one took the name, `path` still stands for the one that had stepped aside.
    For a place in an object store, such as s3://bucket/folder, returns a copy that lasts as long as this process.
    """
    if "://" in str(path):
        copied: Path = load("reef.run.remote.fetch:copied_checkpoint")(str(path))
        return copied
    path = Path(os.path.expanduser(path))
    if _place(path) != path:
        log.warning("%s is not there, as a save over it was cut off or goes on: taking the one before", path)
    if os.path.isdir(path) and not os.path.exists(path / MANIFEST) and (newest := CheckpointStore(path).newest_valid()):
        return newest
    _undisturbed(path, _read_manifest)
    return path


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
        names = {path.name for path in self.directory.glob(f"{PREFIX}*")}
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
            name = self.directory / _name_of(aside)
            _remove(aside) if name.exists() else aside.rename(name)

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
                if (path := self.directory / name) not in (newest, self.pinned):
                    _remove(path)


def is_checkpoint_name(name: str) -> bool:
    """Whether a run's checkpoint may have this name."""
    return name.startswith(PREFIX) and name.removeprefix(PREFIX).isdigit()


def iteration_of(name: str) -> int:
    """The iteration after which the checkpoint of this name was written."""
    return int(name.removeprefix(PREFIX))


def _valid(paths: Iterator[Path] | list[Path]) -> Iterator[Path]:
    for path in paths:
        try:
            verify_checkpoint(path)
        except CheckpointError as error:
            log.warning("skipping a checkpoint: %s", error)
        else:
            yield path


def _read_manifest(path: Path) -> dict[str, Any]:
    if not path.is_dir():
        raise CheckpointError(f"there is no checkpoint at {path}: give the directory that holds {MANIFEST}.")
    if (path / "rllib_checkpoint.json").exists():
        raise CheckpointError(f"{path} is an RLlib checkpoint, which Reef cannot read: train anew or use RLlib.")
    if not (path / MANIFEST).is_file():
        raise CheckpointError(f"{path} has no {MANIFEST}: {_what_it_holds(path)}")
    manifest = _read_json(path / MANIFEST)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT or "files" not in manifest:
        raise CheckpointError(f"{path / MANIFEST} does not describe a Reef checkpoint: give one that Reef wrote.")
    if manifest.get("version") != FORMAT_VERSION:
        raise CheckpointError(
            f"{path} has checkpoint format {manifest.get('version')}, this Reef ({reef.__version__}) reads format "
            f"{FORMAT_VERSION}: use the version that wrote it."
        )
    files = manifest["files"].values() if isinstance(manifest["files"], dict) else []
    described = files and all(isinstance(file, dict) and {"bytes", "sha256"} <= file.keys() for file in files)
    if not described or not isinstance(manifest.get("kind"), str):
        raise CheckpointError(f"{path / MANIFEST} is damaged: it does not describe the files. {USE_ANOTHER}")
    return manifest


def _what_it_holds(path: Path) -> str:
    """Say what to use in place of a folder that is no checkpoint: of a job, which holds runs, or of a sweep."""
    deeper = [file.parent for depth in ("*", "*/*") for file in path.glob(f"{depth}/{PREFIX}*/{MANIFEST}")]
    if not deeper:
        return (
            "its save was cut off, or it is no checkpoint. Use the one before, or give the folder of one run, which "
            "holds its checkpoints."
        )

    def age(found: Path) -> list[str]:
        """By what names end in: run_<time>, trial_<number>, checkpoint_<iteration>."""
        return [name.rpartition("_")[2].zfill(32) for name in found.relative_to(path).parts]

    newest = max(deeper, key=age)
    runs = sorted({found.parent.name for found in deeper})
    shown = ", ".join(runs[:4]) + ", ..." * (len(runs) > 4)
    return f"it is no checkpoint, but holds those of {shown}. Use one, such as {newest}."


def _fingerprint(file: Path) -> dict[str, Any]:
    with file.open("rb") as stream:
        return {"bytes": os.fstat(stream.fileno()).st_size, "sha256": hashlib.file_digest(stream, "sha256").hexdigest()}


def _write_json(file: Path, value: object) -> None:
    with file.open("w", encoding="utf-8") as stream:
        json.dump(value, stream)


def _read_json(file: Path) -> Any:
    try:
        return json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot read {file}: {error}. {USE_ANOTHER}") from error


def _move_into_place(temporary: Path, path: Path) -> None:
    """One rename; a directory that is there already steps aside first, as `rename` replaces only empty ones."""
    aside = _aside(path)
    replaces = path.exists()
    if replaces:
        _remove(aside)
        path.rename(aside)
    try:
        temporary.rename(path)
    except OSError:
        if replaces:
            aside.rename(path)
        raise
    _flush(path.parent)
    _remove(aside)


def _writer(pid: int | str) -> str:
    """How the name of what a process of this machine is writing ends; another one's may be on the same volume."""
    return f".{os.uname().nodename}-{pid}.tmp"


def _clean_after_the_dead(folder: Path) -> None:
    """Remove what saves left behind in `folder` whose processes were killed; of those that go on, nothing."""
    before, after = _writer("*").split("*")
    for leftover in folder.glob(f".*{before}*{after}"):
        pid = leftover.name.removesuffix(after).rpartition(before)[2]
        if pid.isdecimal() and not _is_alive(int(pid)):
            shutil.rmtree(leftover, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # somebody else's
        pass
    return True


def _aside(path: Path) -> Path:
    """Where a checkpoint waits while another one takes its name."""
    return path.with_name(f".{path.name}.old")


def _name_of(aside: Path) -> str:
    return aside.name.removeprefix(".").removesuffix(".old")


def _place(path: Path) -> Path:
    """Where the checkpoint `path` is now."""
    there, waits = os.path.exists(path), os.path.exists(_aside(path) / MANIFEST)  # False also where nobody may look
    return _aside(path) if waits and not there else path


def _undisturbed(path: Path, read: Callable[[Path], T]) -> T:
    """Return what `read` makes of the checkpoint `path`, anew where another one took its place meanwhile."""
    for _ in range(READ_ATTEMPTS):
        before = _identity(path)
        try:
            found = read(_place(path))
        except (CheckpointError, OSError) as error:
            if _identity(path) == before and isinstance(error, CheckpointError):
                raise
            if _identity(path) == before:
                raise CheckpointError(f"cannot read {path}: {error}. {USE_ANOTHER}") from error
        else:
            if _identity(path) == before:
                return found
    raise CheckpointError(f"{path} was replaced {READ_ATTEMPTS} times while it was read: pause what saves there.")


def _identity(path: Path) -> tuple[Path, int, int] | None:
    """Changes when another checkpoint takes the place of `path`."""
    place = _place(path)
    try:
        status = place.stat()
    except OSError:
        return None
    return place, status.st_ino, status.st_ctime_ns


def _remove(directory: Path) -> None:
    """Delete a checkpoint so that a half-deleted one is never taken for a whole one."""
    (directory / MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(directory, ignore_errors=True)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
