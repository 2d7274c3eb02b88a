"""What a failed call is, and which settings say what follows from it."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ray.exceptions import RayActorError, RayError

from reef.config import AlgorithmConfig
from reef.errors import EXIT_FAILED, EXIT_WRONG_USE, WorkerError, WorkerTimeoutError

log = logging.getLogger(__name__)
START = "start"  # the pseudo method of a failure to come up at all
PROBE = "ping"  # the method that every actor answers at once when it is alive
WORK = ("sample", "sample_episodes")  # what rollout workers are there for
NO_CAUSE = "Worker unexpectedly exits with a connection error code 2. End of file."  # what Ray says of any lost process
IDS = re.compile(r"\n\t(class_name|actor_id|pid|name|namespace|ip): .*")  # Ray's own, of an actor
LIMITS = {  # the setting that limits a method, where there is one
    "sample": "sample_timeout_s",
    "sample_episodes": "sample_timeout_s",
    START: "worker_restore_timeout_s",
    PROBE: "worker_health_probe_timeout_s",
}


@dataclass(frozen=True, slots=True)
class Failure:
    """A call that gave no value."""

    index: int  # of the actor in its group
    method: str
    error: str  # in one paragraph, "ValueError: no such level"
    traceback: str = ""  # the worker's own
    exit_code: int = EXIT_FAILED
    raised: bool = False  # by code, and not a lost process or time that ran out
    late: bool = False  # no answer within the limit
    statistics: Mapping[str, float] = field(default_factory=dict)  # of the error

    @property
    def seems_lasting(self) -> bool:
        """Whether another try is likely to fail in the same way."""
        return self.raised or self.exit_code == EXIT_WRONG_USE


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultTolerance:
    """The settings of the group `fault_tolerance`. Without ignoring and recreating, the first failure is an error."""

    ignore_worker_failures: bool = False
    recreate_failed_workers: bool = False
    num_consecutive_worker_failures_tolerance: int = 100
    max_num_worker_restarts: int = 1000  # of one actor
    delay_between_worker_restarts_s: float = 60.0  # of one actor
    worker_health_probe_timeout_s: float = 60.0
    worker_restore_timeout_s: float = 1800.0
    sample_timeout_s: float | None = None  # None: as long as the process lives
    max_requests_in_flight: int = 2  # of one actor
    late_is_an_error: bool = False  # a call past its limit is reported at once, whatever else is covered

    @classmethod
    def of(cls, config: AlgorithmConfig) -> FaultTolerance:
        """What an algorithm's settings say."""
        return cls(
            ignore_worker_failures=config.ignore_worker_failures,
            recreate_failed_workers=config.recreate_failed_workers,
            num_consecutive_worker_failures_tolerance=config.num_consecutive_worker_failures_tolerance,
            max_num_worker_restarts=config.max_num_worker_restarts,
            delay_between_worker_restarts_s=config.delay_between_worker_restarts_s,
            worker_health_probe_timeout_s=config.worker_health_probe_timeout_s,
            worker_restore_timeout_s=config.worker_restore_timeout_s,
            sample_timeout_s=config.sample_timeout_s,
            max_requests_in_flight=config.max_requests_in_flight_per_sampler_worker,
        )


def late(index: int, method: str, limit_s: float | None) -> Failure:
    """A call that took longer than `limit_s` seconds; its actor has been taken down."""
    setting = f" ({LIMITS[method]})" if method in LIMITS else ""
    return Failure(
        index, method, f"TimeoutError: no answer within {limit_s:g} s{setting}; its process was killed", late=True
    )


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
    error.exit_code, error.statistics = failure.exit_code, failure.statistics
    return error
