"""The identity of a run's process: for clients of its server, and for another process that uses the same folder."""

from __future__ import annotations

import os
import re
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from reef.errors import ReefError, StorageError, WriteError

IDENTITY = "Reef-Identity"  # header of /healthz: another process at the same address has another identity
OWNER = ".owner"  # in a run's folder: the process that writes there
OWN = "process {pid} on {host}"  # how its text begins


class Owner(NamedTuple):
    """The process that writes into a run's folder."""

    pid: int
    host: str
    since: float  # Unix time


def owner_of(folder: Path) -> Owner:
    """Which process took the folder of a run over last; OSError where none has."""
    file = folder / OWNER
    if found := re.match(OWN.format(pid=r"(\d+)", host=r"(\S+)"), _text(file)):
        return Owner(int(found[1]), found[2], file.stat().st_mtime)
    raise OSError(f"{file} names no process")


def owner_text(identity: str) -> str:
    """How this process is named as an owner; `identity` is its own among all processes."""
    return f"{OWN.format(pid=os.getpid(), host=socket.gethostname())} ({identity})"


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace")


class Claim:
    """This process's claim to a run's folder: a process that resumes a run takes it over, and one before it must stop.

    A head on a node that was silent for a while may live on beside its successor.
    """

    def __init__(self) -> None:
        self._own = owner_text(uuid.uuid4().hex)

    def take(self, folder: Path) -> None:
        """Say in `folder` that it is this process's from now on."""
        temporary = folder / f"{OWNER}.{uuid.uuid4().hex}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            temporary.write_text(self._own)
            temporary.replace(folder / OWNER)
        except OSError as error:
            raise WriteError(f"cannot write to {folder}: {error}. Free space there or choose another one.") from error

    @contextmanager
    def held(self, folder: Path) -> Iterator[None]:
        """Write into `folder` in this block; raises `ReefError`, a fault, when it is another process's by now."""
        self._check(folder)
        try:
            yield
        except StorageError:
            self._check(folder)  # the process that took it over has removed half-written files
            raise

    def _check(self, folder: Path) -> None:
        try:
            owner = _text(folder / OWNER)
        except FileNotFoundError:
            self.take(folder)
            return
        except OSError as error:
            raise WriteError(f"cannot read {folder / OWNER}: {error}. Check the disk.") from error
        if owner != self._own:
            raise ReefError(f"{folder} was taken over by {owner}, which goes on from here: this process ends.")
