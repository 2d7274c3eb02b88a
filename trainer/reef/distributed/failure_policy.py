"""What follows from a failed call: a restart of its actor, going on without it, or the end. No Ray and no clock."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from reef.config import AlgorithmConfig
from reef.distributed.failures import PROBE, START, Failure
from reef.errors import EXIT_FAILED, EXIT_WRONG_USE

REMEDY = "recreate_failed_workers=True replaces failed workers, ignore_worker_failures=True goes on without them."


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
    request_timeout_s: float | None = None  # None: as long as the process lives
    max_requests_in_flight: int = 2  # of one actor
    late_is_an_error: bool = False  # a call past its limit ends the run, whatever else is covered

    @classmethod
    def of(cls, config: AlgorithmConfig, **limits: Any) -> FaultTolerance:
        """What an algorithm's settings say, with the `limits` of requests."""
        settings = {each.name for each in fields(cls)} & config.by_key.keys()
        return cls(**{name: getattr(config, name) for name in settings}, **limits)


@dataclass(slots=True)
class History:
    """How the calls to one actor and its replacements went."""

    restarts: int = 0
    failures_in_a_row: int = 0
    failure: Failure | None = None  # the last one, until its method succeeds
    succeeded: set[str] = field(default_factory=set)  # methods that returned a value at least once
    works: bool = True  # no failure since the last work
    dropped: bool = False  # for good

    def succeed(self, method: str, *, is_work: bool) -> None:
        """Record that a call returned a value; `is_work`: the actor is there for this method."""
        self.succeeded.add(method)
        self.works = self.works or is_work
        if self.failure is not None and self.failure.method in (method, START, PROBE):
            self.failures_in_a_row, self.failure = 0, None

    def fail(self, failure: Failure) -> None:
        """Record that a call failed."""
        self.failures_in_a_row += 1
        self.failure, self.works = failure, False


@dataclass(frozen=True, slots=True)
class Decision:
    """What follows from a failure."""

    action: Literal["restart", "drop", "end"]
    reason: str = ""  # of an end, where the failure alone does not explain it


@dataclass(frozen=True, slots=True, kw_only=True)
class FailurePolicy:
    """Says whether a failed actor is restarted or dropped, or the run ends, within the budget of the settings."""

    settings: FaultTolerance
    together: bool = False  # one failure takes all actors down, and the failed round is repeated
    elastic: bool = False  # nodes come and go: one loss of each actor does not count as a failure in a row

    def decide(self, failure: Failure, history: History, histories: Collection[History]) -> Decision:
        """Decide on `failure`, the newest of `history`, which is one of the group's `histories`."""
        for reason in self._reasons_to_end(failure, history, histories):
            return Decision("end", reason)
        return Decision("restart" if self._restarts else "drop")

    @property
    def _restarts(self) -> bool:
        """Whether failed actors are replaced; those that work together cannot go on without one."""
        return self.settings.recreate_failed_workers or (self.settings.ignore_worker_failures and self.together)

    def _reasons_to_end(self, failure: Failure, history: History, histories: Collection[History]) -> Iterator[str]:
        settings = self.settings
        if failure.late and settings.late_is_an_error and failure.method != PROBE:
            yield "" if failure.method == START else "Its limit is the evaluation's own."
        if failure.is_final:
            yield ""
        is_repeated = self.together and failure.method != START  # with the same data
        if is_repeated and failure.exit_code == EXIT_WRONG_USE:
            yield ""
        if not self._restarts and not settings.ignore_worker_failures:
            yield REMEDY if failure.exit_code == EXIT_FAILED else ""
        free = 1 if self.elastic else 0  # the loss of a node may be the loss of many actors
        in_a_row = sum(max(each.failures_in_a_row - free, 0) for each in histories if not each.dropped)
        tolerance = settings.num_consecutive_worker_failures_tolerance
        if in_a_row > tolerance:
            yield f"{in_a_row} failures in a row exceed num_consecutive_worker_failures_tolerance={tolerance}."
        is_likely_to_last = failure.raised or failure.exit_code == EXIT_WRONG_USE
        failed_again = is_likely_to_last and history.restarts and history.failures_in_a_row > 1
        if failed_again and not any(failure.method in each.succeeded for each in histories):
            yield f"It was started again and failed again, and {failure.method}() has not succeeded anywhere so far."
        if self._restarts and history.restarts >= settings.max_num_worker_restarts:
            yield f"max_num_worker_restarts={settings.max_num_worker_restarts} is used up."
        if not self._restarts and all(other.dropped for other in histories if other is not history):
            yield f"ignore_worker_failures=True, but none of the {len(histories)} is left."
