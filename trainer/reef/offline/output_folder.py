"""The folder to which a worker writes the episodes that it samples."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from reef.errors import StorageError, WriteError
from reef.offline.episode_files import EpisodeFile, JsonLinesFile, ParquetFile, PlayedEpisode


class OutputFolder:
    """The files `output-<date>_worker-<index>_<number>.<form>` of one worker; others may write to the folder too."""

    def __init__(self, folder: str, worker_index: int, max_bytes: int, compressed: Sequence[str] | None = None) -> None:
        """`max_bytes`: from this size on a file is complete, and the next one begins.

        `compressed`: the columns that are compressed in files of Parquet; None: write lines of JSON.

        Raises:
            StorageError: the folder cannot be made.
        """
        self._folder, self._max_bytes, self._compressed = Path(folder).expanduser(), max_bytes, compressed
        self._name = f"output-{time.strftime('%Y-%m-%d_%H-%M-%S')}_worker-{worker_index}"
        self._numbers = itertools.count()
        self._file: EpisodeFile | None = None
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"output={folder!r}: the folder cannot be made: {error.strerror}.") from error

    def add(self, episode: PlayedEpisode) -> None:
        """Write an episode.

        Raises:
            WriteError: the disk refuses it.
            StorageError: Parquet cannot hold it beside the ones before it.
        """
        with self._writing():
            self._file = self._file or self._next()
            self._file.add(episode)
            is_full = self._file.size() >= self._max_bytes
        if is_full:
            self.close()

    def close(self) -> None:
        """Complete the file that is written, if there is one; WriteError where the disk refuses that."""
        file, self._file = self._file, None
        if file is not None:
            with self._writing():
                file.close()

    def _next(self) -> EpisodeFile:
        while True:
            try:
                path = str(self._folder / f"{self._name}_{next(self._numbers)}")
                if self._compressed is None:
                    return JsonLinesFile(f"{path}.json", new=True)
                return ParquetFile(f"{path}.parquet", new=True, compressed=self._compressed)
            except FileExistsError:  # another run's, of the same second
                continue

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._file = None
            raise WriteError(f"output={str(self._folder)!r}: cannot be written: {error.strerror}.") from error
