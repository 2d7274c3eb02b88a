"""From an object store to this machine: the run that is to be resumed, or a checkpoint to start from."""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from reef.errors import CheckpointError, DamagedCheckpointError
from reef.run.checkpoint.files import MANIFEST, remove_checkpoint, verify_checkpoint
from reef.run.checkpoint.store import CheckpointStore, is_checkpoint_name, iteration_of
from reef.run.process.identity import OWNER
from reef.storage.object_store import RemoteFolder

log = logging.getLogger(__name__)


def fetch_run(remote: RemoteFolder, parent: Path, pattern: str) -> None:
    """Bring the newest run whose name matches `pattern` up to date in `parent`, where the store is ahead of it.

    It gets the newest checkpoint that is whole, and the result files that go with it; each damaged one that is passed
    over gives a warning. Raises `StorageError` where the store cannot be read: going on from less would lose work.
    """
    if name := _newest_name(remote, parent, pattern):
        _bring_up_to_date(remote / name, parent / name)


def fetch_sweep(remote: RemoteFolder, parent: Path, pattern: str) -> None:
    """As `fetch_run` for the newest sweep, whose folder holds its own files and a run for each trial."""
    if not (name := _newest_name(remote, parent, pattern)):
        return
    there, folder = remote / name, parent / name
    ahead = [_bring_up_to_date(there / trial, folder / trial) for trial in there.folders()]
    if any(ahead) or not any(path.is_file() for path in folder.glob("[!.]*")):
        folder.mkdir(parents=True, exist_ok=True)
        _copy_files(there, there.files(), folder)


def _newest_name(remote: RemoteFolder, parent: Path, pattern: str) -> str | None:
    """The name of the newest folder of this pattern in the store; None where `parent` has a newer one."""
    there = max((name for name in remote.folders() if re.fullmatch(pattern, name)), default=None)
    here = [path.name for path in parent.glob("*") if re.fullmatch(pattern, path.name)]
    return None if there is None or there < max(here, default="") else there


def _bring_up_to_date(there: RemoteFolder, folder: Path) -> bool:
    """Give `folder` the newest checkpoint that is whole, and the result files; False where the store is not ahead.

    The checkpoint comes last: without it, after a copy that was cut off, the store is still ahead.
    """
    known = folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    store = CheckpointStore(folder)
    store.clean()
    newest = store.newest_valid()
    after = iteration_of(newest.name) if newest else -1
    files = there.files()
    whole = [name for name in checkpoints_in(files) if f"{name}/{MANIFEST}" in files]
    if known and not any(iteration_of(local_name(name)) > after for name in whole):
        return False
    _copy_files(there, files, folder)
    _copy_newest(there, files, folder, after)
    return True


def _copy_files(there: RemoteFolder, files: dict[str, int], folder: Path) -> None:
    """Copy those of the `files` that lie in no folder of their own."""
    for name, size in files.items():
        if "/" not in name and not name.startswith("."):
            temporary = folder / f".{name}.tmp"
            there.download(name, size, temporary)
            temporary.replace(folder / name)


def copied_checkpoint(uri: str) -> Path:
    """A copy of the checkpoint at `uri`, or of the newest valid one in that folder, for as long as this process lives.

    Raises `CheckpointError` when there is none, or none that is whole.
    """
    remote, folder = RemoteFolder(uri), Path(tempfile.mkdtemp(prefix="reef-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    files = remote.files()
    parent, _, name = remote.uri.rpartition("/")
    if MANIFEST in files:
        return _copy(remote, files, "", folder / name)
    if not files and is_checkpoint_name(name) and not parent.endswith("/"):  # the name lacks its writer
        remote = RemoteFolder(parent)
        files = {file: size for file, size in remote.files().items() if file.startswith(f"{name}-")}
    if (newest := _copy_newest(remote, files, folder)) is None:
        raise CheckpointError(f"there is no checkpoint at {uri}: give the folder that holds {MANIFEST}, or a run's.")
    return newest


def remote_name(name: str, writer: str) -> str:
    """What the checkpoint `name` is called in a store: after its writer too, so that no other one writes there."""
    return f"{name}-{writer}"


def local_name(remote: str) -> str:
    """What a checkpoint in a store is called on a machine."""
    return re.sub(r"-[0-9a-f]{8}$", "", remote)


def checkpoints_in(files: Mapping[str, int]) -> list[str]:
    """Names of the checkpoints among these files, oldest first, whole or not."""
    folders = {name.partition("/")[0] for name in files if "/" in name}
    named = [name for name in folders if is_checkpoint_name(local_name(name))]
    return sorted(named, key=lambda name: (iteration_of(local_name(name)), name))


def _copy_newest(remote: RemoteFolder, files: dict[str, int], folder: Path, after: int = -1) -> Path | None:
    """Copy the newest valid checkpoint, among these `files`, of an iteration later than `after`.

    Those of the process that owns the run come first: another one may have written on for a while.
    """
    try:
        owner = remote.read(OWNER).decode(errors="replace")
    except FileNotFoundError:
        owner = ""
    names = [name for name in checkpoints_in(files) if iteration_of(local_name(name)) > after]
    names.sort(key=lambda name: name != local_name(name) and f"({name[-8:]}" in owner)
    for name in reversed(names):
        try:
            return _copy(remote, files, name, folder / local_name(name))
        except DamagedCheckpointError as error:
            log.warning("skipping a checkpoint: %s", error)
    return None


def _copy(remote: RemoteFolder, files: dict[str, int], name: str, place: Path) -> Path:
    """Copy one checkpoint and check every byte of it; only then it takes its place."""
    prefix = f"{name}/" if name else ""
    temporary = place.with_name(f".{place.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        for file, size in files.items():
            inner = file.removeprefix(prefix)
            if file.startswith(prefix) and "/" not in inner:
                remote.download(file, size, temporary / inner)
        verify_checkpoint(temporary)
        remove_checkpoint(place)  # what is there is damaged, or it would have been taken
        return temporary.rename(place)
    except CheckpointError as error:
        text = str(error).replace(str(temporary), f"{remote}/{name}".rstrip("/"))
        raise type(error)(text) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
