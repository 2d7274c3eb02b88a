"""Small workers for actors: importable by name in their processes, without torch or environments."""

import os
import signal
import sys
import time
from pathlib import Path

from reef.errors import EnvironmentError


class Fake:
    """A worker that does what it is told, also die, hang and raise."""

    def __init__(self, index: int, recreated: bool = False, folder: str = "", broken: tuple[int, ...] = ()):
        if index in broken and not (folder and (Path(folder) / "mended").exists()):
            raise ValueError(f"no level {index}")
        self.index, self.recreated, self.value = index, recreated, None

    def where(self) -> tuple[int, bool]:
        return self.index, self.recreated

    def set(self, value):
        self.value = value

    def get(self):
        return self.value

    def sample(self, dies=(), hangs=(), raises=(), leaves=(), wrong=()):
        if self.index in dies:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.index in hangs:
            time.sleep(60)
        if self.index in raises:
            raise RuntimeError(f"reward of worker {self.index} is broken")
        if self.index in leaves:
            sys.exit(3)
        if self.index in wrong:
            raise EnvironmentError("no such level")
        return self.index

    def nap(self, seconds: float) -> int:
        time.sleep(seconds)
        return self.index

    def ping(self) -> None:
        pass

    def stop(self) -> None:
        pass
