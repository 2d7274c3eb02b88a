"""The actor: one plain object in a process of its own. What it raises comes back as a value."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import ray

from reef.allocator import keep_freed_memory
from reef.config.loading import load
from reef.distributed.failures import START, Failure
from reef.errors import EXIT_WRONG_USE, ReefError
from reef.logs import log_to_stderr
from reef.output import send_output


class ActorProcess:
    """Holds one object in its process and calls its methods."""

    def __init__(self, index: int, name: str, log_level: int) -> None:
        """`name` is before each line that is printed here; `log_level` that of the process that made this one."""
        self._index, self._name, self._log_level = index, name, log_level
        self._object: Any = None

    def start(self, target: str | type, arguments: dict[str, Any], threads: int, environment: dict[str, str]) -> Any:
        """Make the object from its class (or "package.module:Class"); returns process id and node, or a `Failure`."""
        os.environ.update(environment)
        send_output(self._name)
        log_to_stderr(level=self._log_level)
        keep_freed_memory()
        os.environ["OMP_NUM_THREADS"] = str(threads)

        def make() -> tuple[int, str]:
            made_of = load(target) if isinstance(target, str) else target
            if "torch" in sys.modules:  # a class without torch does not wait for its import
                sys.modules["torch"].set_num_threads(threads)
            self._object = made_of(**arguments)
            return os.getpid(), ray.get_runtime_context().get_node_id()

        return self._caught(START, make)

    def call(self, method: str, *args: Any) -> Any:
        """`method(*args)` of the object, or a `Failure`."""
        return self._caught(method, lambda: getattr(self._object, method)(*args))

    def _caught(self, method: str, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except ReefError as error:  # its text is complete: an environment's own traceback is part of it
            text, statistics = f"{type(error).__name__}: {error}", dict(error.statistics)
            code, is_final = error.exit_code, error.is_final
            return Failure(self._index, method, text, exit_code=code, is_final=is_final, statistics=statistics)
        except SystemExit as stop:  # as in one process, where the `reef` command says the same
            text = f"sys.exit({stop.code!r}) was called, raise an error instead"
            return Failure(self._index, method, text, _traceback(stop), EXIT_WRONG_USE)
        except Exception as error:  # whatever an environment may do must reach the driver as text
            return Failure(self._index, method, f"{type(error).__name__}: {error}", _traceback(error), raised=True)


def _traceback(error: BaseException) -> str:
    own = error.__traceback__.tb_next if error.__traceback__ else None  # without the frame of `_caught`
    return "".join(traceback.format_exception(type(error), error, own))
