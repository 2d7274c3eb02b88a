"""What the head reports to the outside: /progress from its first moment on, and the termination message at its end."""

from __future__ import annotations

import bisect
import json
import logging
import threading
import uuid
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from reef.errors import EXIT_FAILED, EXIT_OK, EXIT_TERMINATED, EXIT_WRONG_USE
from reef.job.supervisor import SILENT
from reef.run.prometheus import RunState

log = logging.getLogger(__name__)
LARGEST = 4096  # bytes of a termination message that Kubernetes keeps
CUT = " [...] "
KEPT = ("training", "evaluation", "checkpoint", "workersRecreated", "trials", "bestTrial")
State = Literal["starting", "waiting", "training", "done"]
REASONS = {EXIT_OK: "Completed", EXIT_WRONG_USE: "WrongJob", EXIT_TERMINATED: "Terminated"}


class HeadState(RunState):
    """The state of a run, and what the head does before and after it."""

    def __init__(self) -> None:
        super().__init__()
        self.identity = uuid.uuid4().hex
        self.final_codes: Collection[int] = (EXIT_OK,)  # exit codes after which no other head comes
        self._state: State = "starting"
        self._message = ""
        self._exit_code: int | None = None

    def enter(self, state: State, message: str = "", exit_code: int | None = None) -> None:
        """Say what the head does now, and what it waits for; when it is done, with which code it will end."""
        if (state, message) != (self._state, self._message):
            log.info("%s%s", state, f": {message}" if message else "")
        self._state, self._message, self._exit_code = state, message, exit_code

    def progress(self) -> dict[str, Any]:
        """The parts of the job's status that the head knows, and its own state."""
        result = self.result or {}
        known = {} if self._exit_code is None else {"exitCode": self._exit_code}
        own = {
            "state": self._state,
            "message": self._message,
            "workersHealthy": result.get("num_healthy_workers", 0),
            "workersRecreated": result.get("num_worker_restarts", 0),
            "time": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        }
        return super().progress() | known | own

    def ending(self, exit_code: int, message: str) -> bytes:
        """The termination message: JSON of at most 4096 bytes."""
        progress = self.progress()
        kept = {key: progress.get(key) for key in KEPT}
        if len(json.dumps(kept)) > LARGEST // 2:  # lists as parameters: what /progress said of the trial stays
            kept["bestTrial"] = None
        reason = REASONS.get(exit_code, "Failed")
        return shortened({"exitCode": exit_code, "reason": reason, "message": message, **kept})


def shortened(document: dict[str, Any]) -> bytes:
    """`document` as JSON of at most 4096 bytes, with as much taken out of the middle of its `message` as needed."""
    text: str = document["message"]
    data = json.dumps(document).encode()
    if len(data) <= LARGEST:
        return data

    def with_only(length: int) -> bytes:
        kept = text[: (length + 1) // 2] + CUT + text[len(text) - length // 2 :]
        return json.dumps(document | {"message": kept}).encode()

    too_long = bisect.bisect_left(range(len(text)), LARGEST + 1, key=lambda length: len(with_only(length)))
    return with_only(max(too_long - 1, 0))


class TerminationMessage:
    """The file that says how the head ended; one is ready too for an end that leaves no time to write it."""

    def __init__(self, path: Path, head_state: HeadState) -> None:
        self._path, self._head_state = path, head_state
        self._lock, self._is_final = threading.Lock(), False

    def prepare(self) -> None:
        """Write what is read if this process is killed."""
        with self._lock:
            if not self._is_final:
                self._save(EXIT_FAILED, SILENT)

    def write(self, exit_code: int, message: str) -> None:
        """Write how the head ended; only the first call counts."""
        with self._lock:
            if not self._is_final:
                self._is_final = True
                self._save(exit_code, message)

    def _save(self, exit_code: int, message: str) -> None:
        try:
            self._path.write_bytes(self._head_state.ending(exit_code, message))
        except OSError as error:  # no reason to end otherwise
            log.warning("the termination message cannot be written to %s: %s", self._path, error.strerror)
