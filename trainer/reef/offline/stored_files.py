"""Recorded episodes in an object store: a file at a time is copied to this machine and read."""

from __future__ import annotations

import atexit
import logging
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from reef.errors import ConfigError, WriteError, redacted
from reef.offline.episode_files import ENDINGS, recorded_in
from reef.offline.minari.data_set import SCHEME
from reef.offline.parquet_reader import Names
from reef.offline.places import files_of
from reef.offline.steps import MIB, EpisodeGroup, Recorded
from reef.storage.object_store import RemoteFolder, is_uri

log = logging.getLogger(__name__)
OF_PATTERNS = frozenset("*?[")
KEPT_BYTES = 1024 * MIB  # of copies that stay for the next reading


class Copies:
    """Copies on this machine: the first `KEPT_BYTES` stay until the process ends, others until they have been read.

    Files that are read in turns gain nothing from keeping the newest ones.
    """

    def __init__(self) -> None:
        self._room = KEPT_BYTES
        self._kept: dict[StoredFile, Path] = {}
        self._folder = Path(tempfile.mkdtemp(prefix="reef-"))
        atexit.register(shutil.rmtree, self._folder, ignore_errors=True)

    @contextmanager
    def of(self, file: StoredFile) -> Iterator[Path]:
        """The copy of a file, while it is read.

        Raises:
            StorageError: the store refuses, or does not answer.
            WriteError: this machine's disk has no room.
        """
        path = self._kept.get(file) or self._copied(file)
        try:
            yield path
        finally:
            if file not in self._kept:
                shutil.rmtree(path.parent, ignore_errors=True)

    def _copied(self, file: StoredFile) -> Path:
        log.info("copying %s, %d bytes", file, file.size)
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        path = folder / file.name
        try:
            file.folder.download(file.name, file.size, path)
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise WriteError(
                f"input_={file.uri!r}: it cannot be copied to {folder}: {error.strerror}. Set TMPDIR to a folder with "
                f"room for {file.size // MIB + 1} MiB."
            ) from error
        if file.size <= self._room:
            self._room -= file.size
            self._kept[file] = path
        return path


@dataclass(frozen=True)
class StoredFile:
    """A file in an object store, the same as another one with its address."""

    uri: str
    size: int = field(compare=False)  # bytes
    folder: RemoteFolder = field(compare=False)
    copies: Copies = field(compare=False)

    @property
    def name(self) -> str:
        """The last part of its address."""
        return PurePosixPath(self.uri).name

    def __str__(self) -> str:
        return self.uri


RecordedFile = Path | StoredFile


def recorded_files(places: str | Sequence[str]) -> list[RecordedFile]:
    """The files that are meant by places on this machine, as of `files_of`, and by addresses, each once.

    An address such as s3://bucket/folder is that of a file, of a folder (its files with one of `ENDINGS`), or has a
    pattern as its last part.

    Raises:
        ConfigError: a place leads to no file, or an address is of no object store.
        StorageError: the store refuses, or does not answer.
    """
    found: dict[RecordedFile, None] = {}
    copies: Copies | None = None
    for place in [places] if isinstance(places, str) else places:
        if is_uri(place) and not place.startswith(SCHEME):
            copies = copies or Copies()
            found.update(dict.fromkeys(_files_at(place, copies)))
        else:
            found.update(dict.fromkeys(files_of(place)))
    return list(found)


def _files_at(address: str, copies: Copies) -> Iterator[StoredFile]:
    parent, _, last = address.rstrip("/").rpartition("/")
    is_pattern = not OF_PATTERNS.isdisjoint(last)
    of_parent = is_pattern or last.endswith(ENDINGS)
    folder = RemoteFolder(parent if of_parent else address, "input_")
    sizes = folder.own_files()
    if of_parent:
        chosen = [name for name in sizes if (fnmatchcase(name, last) if is_pattern else name == last)]
    else:
        chosen = [name for name in sizes if PurePosixPath(name).suffix in ENDINGS]
    if not chosen:
        raise ConfigError(
            f"input_={redacted(address)!r}: there is no such file, nor a folder with files that end with "
            f"{', '.join(ENDINGS)}."
        )
    for name in sorted(chosen):
        yield StoredFile(f"{folder}/{name}", sizes[name], folder, copies)


def recorded_in_all(
    files: Iterable[RecordedFile], keys: Collection[str] | None = None, names: Names | None = None
) -> Iterator[Recorded]:
    """As `recorded_in`, of one file after the other; steps have to be taken before the next episode is.

    Raises:
        StorageError, WriteError: as of `Copies`.
    """
    for file in files:
        if isinstance(file, Path):
            yield from recorded_in(file, keys, names)
            continue
        with file.copies.of(file) as path:
            for found in recorded_in(path, keys, names):
                if isinstance(found, EpisodeGroup):
                    yield replace(found, file=file.uri)
                else:
                    yield found[0].replace(str(path), file.uri), found[1]
