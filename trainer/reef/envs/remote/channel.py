"""The two ends of what a worker and the process of an environment talk through."""

from __future__ import annotations

import os
import select
import socket
from multiprocessing.reduction import ForkingPickler
from typing import Any

LENGTH = 8  # bytes before each message
AT_ONCE = 1 << 16  # bytes read in one call, which is enough for most messages


class Channel:
    """One end of a socket between two processes of Reef, of which one has started the other.

    It does what `multiprocessing.connection.Connection` does, with one system call for a message in place of two.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._descriptor = end.fileno()

    def fileno(self) -> int:
        """The descriptor, to wait for a message."""
        return self._descriptor

    def send(self, message: Any) -> None:
        """Send a message; OSError where nobody reads it any more, other errors where it cannot be packed."""
        packed = ForkingPickler.dumps(message)
        data = len(packed).to_bytes(LENGTH, "big") + bytes(packed)
        sent = os.write(self._descriptor, data)
        if sent < len(data):
            self._socket.sendall(memoryview(data)[sent:])

    def receive(self, at_once: int = AT_ONCE) -> Any:
        """The next message, which is waited for; EOFError or OSError where the other end is gone.

        `at_once`: how many bytes may be read with its length; LENGTH, where something else may follow it.
        """
        data = self._read(at_once)
        while len(data) < LENGTH:
            data += self._read(at_once - len(data))
        missing = LENGTH + int.from_bytes(data[:LENGTH], "big") - len(data)
        parts = [memoryview(data)[LENGTH:]]
        while missing:
            parts.append(memoryview(self._read(min(missing, 1 << 20))))
            missing -= len(parts[-1])
        return ForkingPickler.loads(parts[0] if len(parts) == 1 else b"".join(parts))

    def _read(self, size: int) -> bytes:
        data = os.read(self._descriptor, size)
        if not data:
            raise EOFError("the other end is closed")
        return data

    def has_message(self, wait_s: float) -> bool:
        """Whether there is a message or the end, at once or after a wait; OSError where this end is closed."""
        if self._descriptor < 0:
            raise OSError("this end is closed")
        waiting = select.poll()
        waiting.register(self._descriptor, select.POLLIN)
        return bool(waiting.poll(wait_s * 1000))

    def start_process(self, request: bytes, end: socket.socket) -> None:
        """Send a request of fixed size, with the end of a channel for who fulfils it."""
        socket.send_fds(self._socket, [request], [end.fileno()])

    def next_process(self, size: int) -> tuple[bytes, Channel] | None:
        """What `start_process` sent; None once the other end is closed."""
        request, descriptors, *_ = socket.recv_fds(self._socket, size, 1)
        return (request, Channel(socket.socket(fileno=descriptors[0]))) if request else None

    def close(self) -> None:
        """Close this end."""
        self._descriptor = -1  # or calls that come later would reach what is opened under this number
        self._socket.close()
