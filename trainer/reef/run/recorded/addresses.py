"""Recorded episodes in an object store, copied to this machine to be read."""

from __future__ import annotations

import atexit
import logging
import shutil
import tempfile
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from reef.errors import ConfigError, redacted
from reef.offline.episode_files import ENDINGS
from reef.run.remote.object_store import RemoteFolder

log = logging.getLogger(__name__)
OF_PATTERNS = frozenset("*?[")


def on_this_machine(places: str | Sequence[str]) -> list[str]:
    """The places, with copies in place of addresses such as s3://bucket/folder, for as long as this process lives.

    Raises:
        ConfigError: an address is of no object store, or leads to no file.
        StorageError: the store refuses, or does not answer.
    """
    found = []
    for place in [places] if isinstance(places, str) else places:
        found += _copied(place) if "://" in place else [place]
    return found


def _copied(address: str) -> list[str]:
    """Copies of a file, of the files of a folder with one of `ENDINGS`, or of those whose names match a pattern."""
    parent, _, last = address.rstrip("/").rpartition("/")
    is_pattern = not OF_PATTERNS.isdisjoint(last)
    of_parent = is_pattern or last.endswith(ENDINGS)
    try:
        remote = RemoteFolder(parent if of_parent else address)
    except ConfigError as error:
        raise ConfigError(f"input_={redacted(address)!r}: {error}") from error
    sizes = {name: size for name, size in remote.files().items() if "/" not in name}
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
    for name in chosen:
        remote.download(name, sizes[name], folder / name)
    return [str(folder / name) for name in sorted(chosen)]
