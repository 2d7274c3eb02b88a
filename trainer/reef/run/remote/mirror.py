"""From this machine to an object store: what a run has written, while it goes on."""

from __future__ import annotations

import json
import logging
import threading
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pydantic import ValidationError

from reef.errors import ReefError, StoreUnavailableError
from reef.run.checkpoint.content import Metadata
from reef.run.checkpoint.files import MANIFEST, METADATA, is_readable, read_metadata
from reef.run.checkpoint.store import CheckpointStore, iteration_of
from reef.run.process.deadline import Deadline
from reef.run.process.identity import OWNER, owner_text
from reef.run.remote.fetch import checkpoints_in, local_name, remote_name
from reef.run.reporters.videos import VIDEOS
from reef.storage.object_store import RemoteFolder

if TYPE_CHECKING:
    from reef.run.prometheus import RunState

log = logging.getLogger(__name__)
FIRST_DELAY_S, LAST_DELAY_S, DELAY_AT_END_S = 2.0, 60.0, 5.0  # between two tries
END_S, FAULT_S = 600.0, 60.0  # how long the end of a run waits for the store; that of a run that failed
SPARE_S = 2.0  # before a process that got a signal is killed


@dataclass(frozen=True, slots=True)
class Missing:
    """That something is not in the store."""

    text: str  # what, why, and what to do
    hopeless: bool  # the store would say the same again


class Mirror:
    """Keeps in an object store what the folder of a run holds; training does not wait for it.

    A thread of its own uploads one thing after the other. The newest checkpoint comes first: its files, then the
    result files, then its manifest, without which it is none. Then come older ones that are worth keeping and lack in
    the store, and what need not be kept is removed, manifest first. Where the store does not answer, the thread
    tries again, and the training goes on. Leaving the context waits until everything is in the store, and raises
    `StorageError` where it is not.
    """

    def __init__(
        self,
        remote: RemoteFolder,
        store: CheckpointStore,
        run_state: RunState | None = None,
        deadline: Deadline | None = None,
    ) -> None:
        self._remote, self._local, self._run_state = remote, store, run_state
        self.uri, self._deadline = remote.uri, deadline or Deadline()
        identity = uuid.uuid4().hex
        self._writer = identity[:8]  # in the names of checkpoints in the store
        self._owner = owner_text(identity).encode()
        self._claimed = False
        self._there: set[str] = set()  # checkpoints in the store, whole or not, by their names there
        self._places: dict[str, str] = {}  # what those that are whole are called there
        self._stored: dict[str, float | None] | None = None  # those that are whole, with their scores; None: not known
        self._shown: Path | None = None  # the newest that `run_state` knows to be in the store
        self._sent: dict[str, tuple[int, int]] = {}  # size and time of result files as they were uploaded
        self._state = threading.Condition()
        self._asked = self._done = 0  # how often something was new, and up to which of these the store has it
        self._problem: Exception | None = None
        self._ending = self._closed = False
        self._thread = threading.Thread(target=self._work, name="uploads", daemon=True)

    def changed(self) -> None:
        """Have what is new uploaded; raises `ReefError` when another process has taken the run over."""
        with self._state:
            if isinstance(self._problem, TakenOverError):
                raise self._problem
            self._asked += 1
            self._state.notify_all()

    @property
    def missing(self) -> Missing | None:
        """What the store has not got of what was new until now."""
        with self._state:
            if self._done == self._asked:
                return None
            problem = self._problem
        return Missing(self._explained(str(problem) if problem else "it is still under way."), is_hopeless(problem))

    def hurry(self) -> None:
        """Try again at once, and then often: the end is near."""
        with self._state:
            self._ending = True
            self._state.notify_all()

    def __enter__(self) -> Self:
        if self._run_state is not None:
            self._run_state.storage_problem = ""
        self._thread.start()
        self.changed()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if (problem := self._finish(end_limit(kind))) is not None:
            say_missing(self._explained(problem), raising=kind is None)

    def _explained(self, problem: str) -> str:
        return (
            f"what was written last is not in {self.uri}: {problem} It is in {self._local.directory}, as long as this "
            "machine keeps that. Run it again with --resume (a pod does so by itself) once the store answers."
        )

    def _finish(self, limit_s: float) -> str | None:
        """Wait until everything is uploaded; otherwise returns why it is not."""
        deadline = time.monotonic() + limit_s
        with self._state:
            self._ending = True
            self._problem = None if isinstance(self._problem, StoreUnavailableError) else self._problem
            self._asked += 1
            self._state.notify_all()
            while self._done < self._asked and time.monotonic() < deadline and self._deadline.time_left() > SPARE_S:
                if is_hopeless(self._problem):
                    break
                self._state.wait(0.2)
            complete, problem = self._done == self._asked, self._problem
            self._closed = True
            self._state.notify_all()
        if complete:
            self._thread.join()
            return None
        return str(problem) if problem else f"it took longer than there was time ({limit_s:g} s at most)."

    def _work(self) -> None:
        delay_s = 0.0
        while (asked := self._wait(delay_s)) is not None:
            try:
                self._upload()
            except Exception as error:  # whatever it is: it is said, tried again, and said again at the end
                delay_s = min(max(2 * delay_s, FIRST_DELAY_S), DELAY_AT_END_S if self._ending else LAST_DELAY_S)
                self._note(error)
                if isinstance(error, TakenOverError):
                    return
            else:
                delay_s = 0.0
                self._note(None)
                with self._state:
                    self._done = asked
                    self._state.notify_all()

    def _wait(self, delay_s: float) -> int | None:
        """Wait for something to upload, after a failure for a while; returns what was asked for, None at the end."""
        with self._state:
            before, ending = self._asked, self._ending
            if delay_s:
                self._state.wait_for(lambda: self._closed or self._ending > ending or self._asked > before, delay_s)
            self._state.wait_for(lambda: self._closed or self._asked > self._done)
            return None if self._closed else self._asked

    def _note(self, problem: Exception | None) -> None:
        if problem is not None:
            level = logging.WARNING if str(problem) != str(self._problem) else logging.DEBUG
            log.log(level, "training goes on without the store: %s", problem)
        elif self._problem is not None:
            log.warning("%s answers again, and has everything", self.uri)
        with self._state:
            self._problem = problem
            self._state.notify_all()
        if self._run_state is not None:
            self._run_state.storage_problem = "" if problem is None else str(problem)

    def _upload(self) -> None:
        """Make the store hold what this machine holds; an upload that was cut off is made good by the next."""
        self._check_owner()
        stored = self._stored = self._look() if self._stored is None else self._stored
        paths = {path.name: path for path in self._local.paths() if is_readable(path)}  # oldest first
        newest = next(reversed(paths), None)
        if newest is None:
            self._upload_files()
            return
        began = time.monotonic()
        if newest not in stored:
            self._upload_checkpoint(paths[newest], stored)
            self._show(paths[newest], time.monotonic() - began)
        elif self._shown is None:
            self._show(paths[newest])
        self._upload_files()
        kept = self._kept({**stored, **self._local.scores()}, newest)
        for name in kept:
            if name not in stored and name in paths and paths[name].exists():
                self._upload_checkpoint(paths[name], stored)
        if self._local.keep:
            for place in sorted(self._there - {self._places[name] for name in kept if name in self._places}):
                self._remove(place)
            for name in stored.keys() - set(kept):
                del stored[name]

    def _kept(self, scores: dict[str, float | None], newest: str) -> list[str]:
        """What stays in the store, the newest first."""
        best = self._local.by_rank(scores)[: self._local.keep or None]
        return [newest, *(name for name in best if name != newest)]

    def _look(self) -> dict[str, float | None]:
        """The checkpoints that are in the store and belong to this run.

        Not those after the newest one here, and none that differs from that of its name here: a life that was given up
        wrote them.
        """
        files, paths = self._remote.files(), self._local.paths()
        self._there, self._places = set(checkpoints_in(files)), {}
        last = iteration_of(paths[-1].name) if paths else -1
        stored: dict[str, float | None] = {}
        for place in sorted(self._there):
            name = local_name(place)
            if iteration_of(name) > last or f"{place}/{MANIFEST}" not in files:
                continue
            here, manifest = self._local.directory / name / MANIFEST, self._remote.read(f"{place}/{MANIFEST}")
            if is_whole(place, manifest, files) and not (here.exists() and here.read_bytes() != manifest):
                stored[name], self._places[name] = score_in(self._remote.read(f"{place}/{METADATA}")), place
        return stored

    def _check_owner(self) -> None:
        """Take the folder of the run over, or find out that another process has, which may have been thought lost."""
        try:
            owner = self._remote.read(OWNER) if self._claimed else b""
        except FileNotFoundError:
            owner = b""
        if owner not in (b"", self._owner):
            raise TakenOverError(f"{self.uri} was taken over by {owner.decode(errors='replace')}: this process ends.")
        if not owner:
            self._remote.put(OWNER, self._owner)
            self._claimed = True

    def _put(self, name: str, content: bytes | Path) -> None:
        """Write an object of the run, unless another process has taken it over meanwhile."""
        self._check_owner()
        self._remote.put(name, content)

    def _upload_checkpoint(self, path: Path, stored: dict[str, float | None]) -> None:
        """Upload under a name that no other process writes to: one that was replaced may find out late."""
        place = remote_name(path.name, self._writer)
        self._local.pinned = path
        try:
            manifest = (path / MANIFEST).read_bytes()
            if place in self._there:
                self._remote.delete(f"{place}/{MANIFEST}")  # what it replaces is none from here on
            self._there.add(place)
            for file in sorted(json.loads(manifest)["files"]):
                self._put(f"{place}/{file}", path / file)
            self._upload_files()
            self._put(f"{place}/{MANIFEST}", manifest)
            stored[path.name], self._places[path.name] = read_metadata(path).get("score"), place
            for other in [one for one in self._there if local_name(one) == path.name and one != place]:
                self._remove(other)  # of a life that was given up, or damaged
        finally:
            self._local.pinned = None

    def _upload_files(self) -> None:
        """Upload the result files and videos that have changed."""
        directory = self._local.directory
        for file in sorted((*directory.glob("[!.]*"), *directory.glob(f"{VIDEOS}/[!.]*"))):
            if file.is_file():
                status, name = file.stat(), file.relative_to(directory).as_posix()
                version = status.st_size, status.st_mtime_ns
                if self._sent.get(name) != version:
                    self._put(name, file.read_bytes())  # at once, as more may be appended meanwhile
                    self._sent[name] = version

    def _remove(self, place: str) -> None:
        self._check_owner()
        self._remote.delete(f"{place}/{MANIFEST}")
        self._remote.delete(*self._remote.files(place))
        self._there.discard(place)

    def _show(self, path: Path, seconds: float | None = None) -> None:
        self._shown = path
        if self._run_state is not None:
            uri = f"{self.uri}/{self._places[path.name]}"
            self._run_state.saved(path, iteration_of(path.name), read_metadata(path)["time"], seconds, uri=uri)


def is_hopeless(problem: Exception | None) -> bool:
    """Whether the store would say the same again."""
    return problem is not None and not isinstance(problem, StoreUnavailableError | OSError)


def end_limit(kind: type[BaseException] | None) -> float:
    """Seconds that a run which ends with an exception of this `kind`, or well, waits for the store."""
    return END_S if kind is None else FAULT_S if issubclass(kind, Exception) else 0.0


def say_missing(problem: str, *, raising: bool) -> None:
    """Raise `StoreUnavailableError` for what is not in the store, or log it where another error is under way."""
    if raising:
        raise StoreUnavailableError(problem)
    log.error("%s", problem)


class TakenOverError(ReefError):
    """Another process goes on with this run."""


def is_whole(name: str, manifest: bytes, files: dict[str, int]) -> bool:
    """Whether every file that a checkpoint's manifest names is there, with its size."""
    try:
        expected = json.loads(manifest)["files"]
        return all(files[f"{name}/{file}"] == about["bytes"] for file, about in expected.items())
    except (ValueError, LookupError, TypeError, AttributeError):
        return False


def score_in(metadata: bytes) -> float | None:
    """The score in a metadata file; None where there is none, or the file is damaged."""
    try:
        return Metadata.model_validate_json(metadata).score
    except ValidationError:
        return None
