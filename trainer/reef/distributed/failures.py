"""What a failed call is, and what a person reads of it."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ray.exceptions import RayActorError, RayError

from reef.errors import EXIT_FAILED, WorkerError, WorkerTimeoutError

log = logging.getLogger(__name__)
START = "start"  # the pseudo method of a failure to come up at all
PROBE = "ping"  # the method that every actor answers at once when it is alive
NO_CAUSE = "Worker unexpectedly exits with a connection error code 2. End of file."  # what Ray says of any lost process
IDS = re.compile(r"\n\t(class_name|actor_id|pid|name|namespace|ip): .*")  # Ray's own, of an actor
LIMITS = {START: "worker_restore_timeout_s", PROBE: "worker_health_probe_timeout_s"}  # by method, its setting


@dataclass(frozen=True, slots=True)
class Failure:
    """A call that gave no value."""

    index: int  # of the actor in its group
    method: str
    error: str  # in one paragraph, "ValueError: no such level"
    traceback: str = ""  # the worker's own
    exit_code: int = EXIT_FAILED
    raised: bool = False  # by code, and not a lost process or time that ran out
    is_final: bool = False  # ends the run, whatever the settings cover
    late: bool = False  # no answer within the limit
    statistics: Mapping[str, float] = field(default_factory=dict)  # of the error


def late(index: int, method: str, limit_s: float | None, setting: str | None) -> Failure:
    """A call that took longer than `limit_s` seconds, the value of `setting`; its actor has been taken down."""
    named = f" ({setting})" if setting else ""
    ended = "it found no room, or hangs" if method == START else "its process was killed"
    error = f"TimeoutError: no answer within {limit_s:g} s{named}; {ended}"
    return Failure(index, method, error, late=True)


def died(index: int, pid: int, method: str, error: RayError) -> Failure:
    """What Ray knows of a call whose process, node or answer is gone."""
    known = str(error).strip().split(" Some common causes")[0]
    if not isinstance(error, RayActorError):
        return Failure(index, method, f"{type(error).__name__}: {known}")
    process = f"its process {pid}" if pid else "its process"
    log.debug("what Ray says of %s: %s", process, known)
    cause = "" if NO_CAUSE in known else f"Ray: {IDS.sub('', known)}"
    return Failure(index, method, f"{process} died: killed, out of memory, or its node was lost", cause)


def error_of(name: str, failure: Failure, first: Failure, reason: str) -> WorkerError:
    """The error for a `failure` of the actor `name` that is not covered, and why; with the `first` one of its group."""
    parts = [f"{name} {failure.index} failed in {failure.method}(): {failure.error}", *filter(None, [reason])]
    if failure.traceback:
        parts.append(f"Its traceback:\n{failure.traceback.rstrip()}")
    if first is not failure:
        same = first.error == failure.error
        what = "the same error" if same else first.error
        parts.append(f"The first failure was {name} {first.index} in {first.method}(): {what}")
        if first.traceback and not same:
            parts.append(first.traceback.rstrip())
    error = (WorkerTimeoutError if failure.late else WorkerError)("\n".join(parts))
    error.exit_code, error.statistics, error.in_start = failure.exit_code, failure.statistics, failure.method == START
    return error
