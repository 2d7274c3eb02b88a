"""Recorded episodes in an object store, copied to this machine to be read."""

from __future__ import annotations

import atexit
import logging
import shutil
import tempfile
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from reef.errors import ConfigError, redacted
from reef.offline.episode_files import ENDINGS
from reef.offline.minari.data_set import SCHEME
from reef.run.remote.object_store import RemoteFolder

log = logging.getLogger(__name__)
OF_PATTERNS = frozenset("*?[")


def on_this_machine(places: str | Sequence[str]) -> list[str]:
    """The places, with copies in place of addresses such as s3://bucket/folder, for as long as this process lives.

    Raises:
        ConfigError: an address is of no object store, or leads to no file.
        StorageError: the store refuses, or does not answer.
    """
    found: dict[str, str] = {}  # what is read, by what was given: each file once
    for place in [places] if isinstance(places, str) else places:
        found |= _copied(place, found) if "://" in place and not place.startswith(SCHEME) else {place: place}
    return list(found.values())


def _copied(address: str, known: Collection[str]) -> dict[str, str]:
    """Copies by address of a file, of the files of a folder with one of `ENDINGS`, or of those that match a pattern.

    Those that are `known` already are left out.
    """
    parent, _, last = address.rstrip("/").rpartition("/")
    is_pattern = not OF_PATTERNS.isdisjoint(last)
    of_parent = is_pattern or last.endswith(ENDINGS)
    try:
        remote = RemoteFolder(parent if of_parent else address)
    except ConfigError as error:
        raise ConfigError(f"input_={redacted(address)!r}: {error}") from error
    sizes = remote.own_files()
    if of_parent:
        chosen = [name for name in sizes if (fnmatchcase(name, last) if is_pattern else name == last)]
    else:
        chosen = [name for name in sizes if PurePosixPath(name).suffix in ENDINGS]
    if not chosen:
        raise ConfigError(
            f"input_={redacted(address)!r}: there is no such file, nor a folder with files that end with "
            f"{', '.join(ENDINGS)}."
        )
    folder = Path(tempfile.mkdtemp(prefix="reef-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    log.info("copying %d files, %d bytes, from %s", len(chosen), sum(map(sizes.__getitem__, chosen)), remote)
    found = {f"{remote}/{name}": folder / name for name in sorted(chosen) if f"{remote}/{name}" not in known}
    for path in found.values():
        remote.download(path.name, sizes[path.name], path)
    return {place: str(path) for place, path in found.items()}
