"""What workers print, shown by the process that started Ray on their machine, each line with the worker's name.

A worker's process puts two pipes in place of its stdout and stderr, and hands their other ends to an `OutputReader`
through a Unix socket. Nothing is written to a disk on the way, and what a crashed process has printed is still read.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import logging
import os
import selectors
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO, Self, TextIO, cast

log = logging.getLogger(__name__)
SOCKET = "REEF_OUTPUT"  # variable: where the reader listens; processes of Ray's node inherit it
NAME = "REEF_OUTPUT_NAME"  # variable: the name of this process, put before those of the workers that it starts
LINE_BYTES = 8192  # the rest of a longer line is left out
WINDOW_S, WINDOW_LINES = 10.0, 1000  # how many lines a worker may print in how many seconds
PIPE_BYTES = 256 * 1024  # room for what is printed between two looks
BETWEEN_LOOKS_S = 0.02  # a flood of lines wakes the reader 50 times a second, not once a line
CONNECT_S = 5.0
DRAIN_S = 1.0  # how long what is still printed may hold up `stop`
CONTROL = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if code != ord("\t")}
Write = Callable[[str], object]


def full_name(name: str) -> str:
    """The name of a worker that this process starts: "trial_0001 worker 2" in a trial's process."""
    return " ".join(filter(None, (os.environ.get(NAME), name)))


def send_output(name: str) -> None:
    """Have what this process and its children print shown as lines of `name`; changes nothing without a reader."""
    if not (path := os.environ.get(SOCKET)):
        return
    os.environ[NAME] = name
    pipes = [os.pipe(), os.pipe()]
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(CONNECT_S)
            connection.connect(path)
            socket.send_fds(connection, [name.encode()], [reading for reading, _ in pipes])
        for stream, (_, writing) in enumerate(pipes, start=1):
            with contextlib.suppress(OSError, AttributeError):  # Linux alone can; a user may have used up the limit
                fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
            os.dup2(writing, stream)
        sys.stdout, sys.stderr = _line_buffered(1), _line_buffered(2)
    except OSError as error:
        log.warning("what %s prints stays in Ray's log files: no reader at %s: %s", name, path, error)
    finally:
        for end in (*pipes[0], *pipes[1]):
            os.close(end)


def _line_buffered(stream: int) -> TextIO:
    return open(stream, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


def named_stdout(name: str) -> TextIO:
    """A stdout for this process itself, whose lines go to stderr in the form of a worker's."""
    stream = Stream(Quota(name, to_stderr))
    raw = cast("IO[bytes]", _Fed(stream))
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", write_through=True)


def to_stderr(text: str) -> None:
    """Write to stderr as it is now: a progress bar may be there, a full disk behind it is no reason to stop."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(text)
        sys.stderr.flush()


@dataclass(slots=True)
class Quota:
    """How many lines a worker may still print, for both of its streams."""

    name: str
    write: Write
    clock: Callable[[], float] = time.monotonic
    dropped: int = 0
    _shown: int = 0
    _until: float = 0.0

    def show(self, lines: list[bytes]) -> None:
        """Write the lines for which there is room, and count the others."""
        self.look()
        room = max(WINDOW_LINES - self._shown, 0)
        self._shown += len(lines[:room])
        self.dropped += len(lines[room:])
        self.write("".join(f"({self.name}) {_readable(line)}\n" for line in lines[:room]))

    def look(self) -> None:
        """Begin another window when it is time, and say what the one before left out."""
        if self.clock() >= self._until:
            self.close()
            self._shown, self._until = 0, self.clock() + WINDOW_S

    def close(self) -> None:
        """Say how many lines were left out."""
        if self.dropped:
            limit = f"{WINDOW_LINES} in {WINDOW_S:g} s"
            self.write(f"({self.name}) [{self.dropped} lines dropped: a worker may print {limit}]\n")
            self.dropped = 0


@dataclass(slots=True)
class Stream:
    """Stdout or stderr of one process, cut into lines."""

    quota: Quota
    _rest: bytes = b""  # a line that has not ended

    def feed(self, data: bytes) -> None:
        """Take in what was printed; empty lines carry nothing, and a carriage return ends a line too."""
        *ended, rest = (self._rest + data).replace(b"\r", b"\n").split(b"\n")
        self._rest = rest[: LINE_BYTES + 1]
        if lines := [line for line in ended if line]:
            self.quota.show(lines)

    def close(self) -> None:
        """Show what has come of a line that never ended."""
        if self._rest:
            self.quota.show([self._rest])


def _readable(line: bytes) -> str:
    cut = f" [cut after {LINE_BYTES} bytes]" if len(line) > LINE_BYTES else ""
    return line[:LINE_BYTES].decode(errors="backslashreplace").translate(CONTROL) + cut


class _Fed(io.RawIOBase):
    """What a `TextIOWrapper` writes to."""

    def __init__(self, stream: Stream) -> None:
        self._stream, self._lock = stream, threading.Lock()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 1  # for processes that a user's environment starts

    def write(self, data: bytes | bytearray | memoryview) -> int:  # type: ignore[override]
        with self._lock:
            self._stream.feed(bytes(data))
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
            self._stream.quota.close()
        super().close()


@dataclass(slots=True)
class _Worker:
    """A process that prints."""

    quota: Quota
    streams: dict[int, Stream] = field(default_factory=dict)  # by the reading end of its pipe


@contextlib.contextmanager
def output_shown() -> Iterator[None]:
    """Have an `OutputReader` in the block, where one can be had."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(OutputReader())
        except OSError as error:
            log.warning("what workers print stays in Ray's log files: no socket can be made in /tmp: %s", error)
        yield


class OutputReader:
    """Shows what the workers of this machine print, from a thread of its own.

    Processes that are started while it runs find it by a variable of the environment.
    """

    def __init__(self, write: Write = to_stderr) -> None:
        """Listen at once; raises OSError when no socket can be made."""
        self._write = write
        # The path of a socket may have 107 bytes, and TMPDIR more
        self._folder = tempfile.TemporaryDirectory(prefix="reef-", dir="/tmp", ignore_cleanup_errors=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path := f"{self._folder.name}/output")
        self._listener.listen(128)
        self._stopped, self._stopping = os.pipe()
        self._selector = selectors.DefaultSelector()
        for source, action in ((self._listener, self._connect), (self._stopped, self._stop)):
            self._selector.register(source, selectors.EVENT_READ, action)
        self._workers: list[_Worker] = []
        self._ends_at: float | None = None
        os.environ[SOCKET] = path
        self._thread = threading.Thread(target=self._run, name="output", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Show what has been printed and end; the workers should have ended before."""
        if not self._thread.is_alive():
            return
        os.environ.pop(SOCKET, None)
        os.write(self._stopping, b"\n")
        self._thread.join()
        self._listener.close()
        os.close(self._stopping)
        os.close(self._stopped)
        self._selector.close()
        self._folder.cleanup()

    def _run(self) -> None:
        while self._ends_at is None or time.monotonic() < self._ends_at:
            flooded = any(worker.quota.dropped for worker in self._workers)
            wait_s = 0.0 if self._ends_at is not None else 1.0 if flooded else None
            ready = self._selector.select(wait_s)
            for key, _ in ready:
                key.data()
            for worker in self._workers:
                worker.quota.look()
            if self._ends_at is None:
                time.sleep(BETWEEN_LOOKS_S)
            elif not ready:
                break
        for worker in list(self._workers):
            for source in list(worker.streams):
                self._end(worker, source)

    def _stop(self) -> None:
        self._selector.unregister(self._stopped)
        self._ends_at = time.monotonic() + DRAIN_S

    def _connect(self) -> None:
        connection, _ = self._listener.accept()
        connection.setblocking(False)
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._take(connection))

    def _take(self, connection: socket.socket) -> None:
        """Take the pipes of a process that has connected."""
        self._selector.unregister(connection)
        with connection:
            try:
                name, sources, _, _ = socket.recv_fds(connection, 256, 2)
            except OSError:
                return
        if not sources:
            return
        worker = _Worker(Quota(name.decode(errors="replace"), self._write))
        self._workers.append(worker)
        for source in sources:
            worker.streams[source] = Stream(worker.quota)
            self._selector.register(source, selectors.EVENT_READ, lambda source=source: self._read(worker, source))

    def _read(self, worker: _Worker, source: int) -> None:
        if data := os.read(source, PIPE_BYTES):
            worker.streams[source].feed(data)
        else:
            self._end(worker, source)

    def _end(self, worker: _Worker, source: int) -> None:
        self._selector.unregister(source)
        os.close(source)
        worker.streams.pop(source).close()
        if not worker.streams:
            worker.quota.close()
            self._workers.remove(worker)
