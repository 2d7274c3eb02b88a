"""Checkpoints: a directory of safetensors and JSON that is either there as a whole or not at all.

    checkpoint_000010/
        arrays.safetensors   every numpy array of the state
        state.json           the rest of the state; {"$array": key} is where an array was
        metadata.json        algorithm, config, iteration, Reef's version, when
        model_<policy>.safetensors    with export_native_model_files: the parameters of each policy by name
        manifest.json        format version, size and sha256 of the files above; written last

All is written and flushed in a hidden sibling directory, which then takes its name by one rename. Nothing is pickled.
A checkpoint that is to be replaced steps aside to the hidden sibling `.<name>.old` before that rename and is deleted
after it: at any moment one of the two is whole, and a reader of `<name>` gets that one, also while it is replaced.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

import reef
from reef.errors import CheckpointError, DamagedCheckpointError, StorageError, WriteError
from reef.run.checkpoint.content import check_files, check_metadata, restoring
from reef.run.checkpoint.models import write_models
from reef.trees import USE_ANOTHER, put_arrays_back, take_arrays_out
from reef.types import Array, State

FORMAT, KIND = "reef-checkpoint", "algorithm"
FORMAT_VERSION = 3
ARRAYS, STATE, METADATA, MANIFEST = "arrays.safetensors", "state.json", "metadata.json", "manifest.json"
NAMES = frozenset((ARRAYS, STATE, METADATA))
READ_ATTEMPTS = 10
MOST_JSON = 2**28  # bytes of a file that is read as a whole

T = TypeVar("T")


def write_checkpoint(path: str | Path, state: State, metadata: dict[str, Any] | None = None) -> None:
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
        models = write_models(temporary, state) if (metadata or {}).get("exports_models") else []
        files = {name: _fingerprint(temporary / name) for name in (ARRAYS, STATE, METADATA, *models)}
        manifest = {"format": FORMAT, "version": FORMAT_VERSION, "kind": KIND, "files": files}
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


def read_checkpoint(path: str | Path) -> tuple[State, dict[str, Any]]:
    """Return (state, metadata) of a checkpoint after checking every byte of it.

    Raises `CheckpointError` naming the file that is missing, damaged or foreign.
    """
    return _undisturbed(Path(path), _read)


def _read(path: Path) -> tuple[State, dict[str, Any]]:
    _verify(path)
    with restoring(path / STATE):
        state = put_arrays_back(_read_json(path / STATE), load_file(path / ARRAYS))
        if not isinstance(state, dict):
            raise DamagedCheckpointError(f"it holds a {type(state).__name__}, expected a mapping. {USE_ANOTHER}")
    return state, read_metadata(path)


def read_algorithm(path: Path) -> tuple[State, dict[str, Any]]:
    """As `read_checkpoint` for that of an algorithm, which says of which one and with what settings."""
    state, metadata = read_checkpoint(path)
    for key in ("algorithm", "config", "iteration"):
        if metadata.get(key) is None:
            raise DamagedCheckpointError(f"{path / METADATA} is damaged: {key} is missing. {USE_ANOTHER}")
    if metadata["iteration"] != state.get("iteration"):
        raise DamagedCheckpointError(
            f"{path / METADATA} is damaged: its iteration {metadata['iteration']} is not that of {STATE}. {USE_ANOTHER}"
        )
    return state, metadata


def read_state(path: Path, algorithm: str) -> State:
    """The state in a checkpoint; raises `CheckpointError` also when another algorithm wrote it."""
    state, metadata = read_algorithm(path)
    if metadata["algorithm"] != algorithm:
        raise CheckpointError(
            f"{path} was written by {metadata['algorithm']}, but {algorithm} is to be trained: "
            "give a checkpoint of the same algorithm."
        )
    return state


def read_metadata(path: str | Path) -> dict[str, Any]:
    """Return the metadata of a checkpoint (algorithm, config, iteration, ...) without reading its state."""
    return _undisturbed(Path(path), lambda place: check_metadata(_read_json(place / METADATA), place / METADATA))


def verify_checkpoint(path: Path) -> None:
    """Check format version, sizes and checksums; raises `CheckpointError`."""
    _undisturbed(path, _verify)


def _verify(path: Path) -> None:
    manifest = _read_manifest(path)
    if (kind := manifest["kind"]) != KIND:
        raise DamagedCheckpointError(f"{path} is a checkpoint of kind {kind!r}, not {KIND!r}: give one of that kind.")
    for name, expected in check_files(manifest["files"], NAMES, path / MANIFEST).items():
        file = path / name
        if (size := _regular(file).st_size) != expected.bytes:
            raise DamagedCheckpointError(f"{file} is cut off: {size} bytes instead of {expected.bytes}. {USE_ANOTHER}")
        if _fingerprint(file)["sha256"] != expected.sha256:
            raise DamagedCheckpointError(f"{file} is damaged: its sha256 differs from {MANIFEST}. {USE_ANOTHER}")


def check_place(path: Path) -> None:
    """Raise `CheckpointError` unless a checkpoint that this Reef can read is at `path`; its files are not looked at."""
    _undisturbed(path, _read_manifest)


def is_readable(path: Path) -> bool:
    """Whether manifest and metadata of a checkpoint are as they should be; the other files are not looked at."""
    try:
        manifest = _undisturbed(path, _read_manifest)
        check_files(manifest["files"], NAMES, path / MANIFEST)
        read_metadata(path)
    except CheckpointError:
        return False
    return True


def _read_manifest(path: Path) -> dict[str, Any]:
    if not path.is_dir():
        raise DamagedCheckpointError(f"there is no checkpoint at {path}: give the directory that holds {MANIFEST}.")
    if (path / "rllib_checkpoint.json").exists():
        raise DamagedCheckpointError(
            f"{path} is an RLlib checkpoint, which Reef cannot read: train from scratch or use RLlib."
        )
    if not os.path.lexists(path / MANIFEST):
        raise DamagedCheckpointError(f"{path} has no {MANIFEST}: {_what_it_holds(path)}")
    manifest = _read_json(path / MANIFEST)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT or "files" not in manifest:
        raise DamagedCheckpointError(
            f"{path / MANIFEST} does not describe a Reef checkpoint: give one that Reef wrote."
        )
    if manifest.get("version") != FORMAT_VERSION:
        raise CheckpointError(  # not to be passed over: what was learned would be lost
            f"{path} has checkpoint format {manifest.get('version')}, this Reef ({reef.__version__}) reads format "
            f"{FORMAT_VERSION}: use the version that wrote it."
        )
    if not isinstance(manifest.get("kind"), str):
        raise DamagedCheckpointError(f"{path / MANIFEST} is damaged: it says no kind. {USE_ANOTHER}")
    return manifest


def _what_it_holds(path: Path) -> str:
    """Say what to use in place of a folder that is no checkpoint: of a job, which holds runs, or of a sweep."""
    patterns = (f"{depth}/checkpoint_*/{MANIFEST}" for depth in ("*", "*/*"))
    # Not Path.glob, which ends with the first folder that goes meanwhile.
    deeper = [(path / name).parent for pattern in patterns for name in glob.glob(pattern, root_dir=path)]
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
        if (size := _regular(file).st_size) > MOST_JSON:
            raise DamagedCheckpointError(f"{file} has {size} bytes, which no checkpoint needs. {USE_ANOTHER}")
        return json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedCheckpointError(f"cannot read {file}: {error}. {USE_ANOTHER}") from error


def _regular(file: Path) -> os.stat_result:
    """What the system says of a file of a checkpoint, which lies in the checkpoint's folder and nowhere else."""
    try:
        inside = os.path.realpath(file, strict=True) == os.path.join(os.path.realpath(file.parent), file.name)
        status = file.stat()
    except OSError as error:
        raise DamagedCheckpointError(f"{file} is missing: {error.strerror}. {USE_ANOTHER}") from error
    if not inside or not stat.S_ISREG(status.st_mode):
        raise DamagedCheckpointError(
            f"{file} is no file of its own, but a link or a device. Copy the file that it points to."
        )
    return status


def _move_into_place(temporary: Path, path: Path) -> None:
    """One rename; a directory that is there already steps aside first, as `rename` replaces only empty ones."""
    aside = checkpoint_beside(path)
    replaces = path.exists()
    if replaces:
        remove_checkpoint(aside)
        path.rename(aside)
    try:
        temporary.rename(path)
    except OSError:
        if replaces:
            aside.rename(path)
        raise
    _flush(path.parent)
    remove_checkpoint(aside)


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
    except PermissionError:  # another user's
        pass
    return True


def checkpoint_beside(path: Path) -> Path:
    """Where a checkpoint waits while another one takes its name."""
    return path.parent / f".{path.name}.old"


def checkpoint_there(path: Path) -> Path:
    """Where the checkpoint `path` is now."""
    there, waits = (
        os.path.exists(path),
        os.path.exists(checkpoint_beside(path) / MANIFEST),
    )  # False also where looking is not allowed
    return checkpoint_beside(path) if waits and not there else path


def _undisturbed(path: Path, read: Callable[[Path], T]) -> T:
    """Return what `read` makes of the checkpoint `path`, again where another one took its place meanwhile."""
    for _ in range(READ_ATTEMPTS):
        before = _identity(path)
        try:
            found = read(checkpoint_there(path))
        except (CheckpointError, OSError) as error:
            if _identity(path) == before and isinstance(error, CheckpointError):
                raise
            if _identity(path) == before:
                raise DamagedCheckpointError(f"cannot read {path}: {error}. {USE_ANOTHER}") from error
        else:
            if _identity(path) == before:
                return found
    raise CheckpointError(f"{path} was replaced {READ_ATTEMPTS} times while it was read: pause what saves there.")


def _identity(path: Path) -> tuple[Path, int, int] | None:
    """Changes when another checkpoint takes the place of `path`."""
    place = checkpoint_there(path)
    try:
        status = place.stat()
    except (OSError, ValueError):  # ValueError: no path, such as one with a zero byte
        return None
    return place, status.st_ino, status.st_ctime_ns


def remove_checkpoint(directory: Path) -> None:
    """Delete a checkpoint so that a half-deleted one is never taken for a whole one; of a link, only the link."""
    if directory.is_symlink():
        directory.unlink()
        return
    (directory / MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(directory, ignore_errors=True)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
