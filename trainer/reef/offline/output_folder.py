"""The folder to which a worker writes the episodes that it samples."""

from __future__ import annotations

import atexit
import itertools
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from reef.errors import StorageError, WriteError
from reef.offline.episode_files import EpisodeFile, JsonLinesFile, ParquetFile, PlayedEpisode
from reef.storage.object_store import RemoteFolder, is_uri


class OutputFolder:
    """The files `output-<date>_worker-<index>_<number>.<form>` of one worker; others may write to the folder too.

    In an object store a file appears when it is complete; until then it is in a folder of this machine. `<index>` is
    followed by an identity of the writer there, as stores cannot say that somebody else is writing a file.
    """

    def __init__(self, folder: str, worker_index: int, max_bytes: int, compressed: Sequence[str] | None = None) -> None:
        """`folder`: or an address in an object store. `max_bytes`: from this size on a file is complete.

        `compressed`: the columns that are compressed in files of Parquet; None: write lines of JSON.

        Raises:
            StorageError: the folder cannot be made, or the object store refuses a first small object.
        """
        self._given, self._max_bytes, self._compressed = folder, max_bytes, compressed
        self._name = f"output-{time.strftime('%Y-%m-%d_%H-%M-%S')}_worker-{worker_index}"
        self._numbers = itertools.count()
        self._file: EpisodeFile | None = None
        self._path = Path()  # of that file
        self._remote: RemoteFolder | None = None
        try:
            if is_uri(folder):
                self._remote = RemoteFolder(folder, "output").check_writable()
                self._name += f"-{uuid.uuid4().hex[:8]}"
                self._folder = Path(tempfile.mkdtemp(prefix="reef-output-"))
                atexit.register(shutil.rmtree, self._folder, ignore_errors=True)
            else:
                self._folder = Path(folder).expanduser()
                self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"output={folder!r}: the folder cannot be made: {error.strerror}.") from error

    def add(self, episode: PlayedEpisode) -> None:
        """Write an episode.

        Raises:
            WriteError: the disk refuses it.
            StorageError: Parquet cannot hold it beside the ones before it, or as of `close`.
        """
        with self._writing():
            self._file = self._file or self._next()
            self._file.add(episode)
            is_full = self._file.size() >= self._max_bytes
        if is_full:
            self.close()

    def close(self) -> None:
        """Complete the file that is written, if there is one, and bring it to its object store.

        Raises:
            WriteError: the disk refuses that.
            StorageError: the store refuses it, or does not answer; the file is lost then.
        """
        file, self._file = self._file, None
        if file is None:
            return
        with self._writing():
            file.close()
        if self._remote is not None:
            try:
                self._remote.put(self._path.name, self._path)
            finally:
                self._path.unlink()

    def _next(self) -> EpisodeFile:
        while True:
            form = "json" if self._compressed is None else "parquet"
            self._path = self._folder / f"{self._name}_{next(self._numbers)}.{form}"
            try:
                if self._compressed is None:
                    return JsonLinesFile(str(self._path), new=True)
                return ParquetFile(str(self._path), new=True, compressed=self._compressed)
            except FileExistsError:  # another run's, of the same second
                continue

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._file = None
            raise WriteError(f"output={self._given!r}: cannot be written: {error.strerror}.") from error
