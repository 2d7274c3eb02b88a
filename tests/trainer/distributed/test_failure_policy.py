"""What follows from a failure, as a table: no processes, no clock."""

from __future__ import annotations

from typing import Any

import pytest

from reef.distributed.failure_policy import REMEDY, Decision, FailurePolicy, FaultTolerance, History
from reef.distributed.failures import PROBE, START, Failure
from reef.errors import EXIT_FAILED, EXIT_WRONG_USE

RESTART, DROP = Decision("restart"), Decision("drop")
IGNORE, RECREATE = {"ignore_worker_failures": True}, {"recreate_failed_workers": True}
AGAIN = "It was started again and failed again, and work() has not succeeded anywhere so far."


def failure(method: str = "work", **what: Any) -> Failure:
    return Failure(1, method, "its process died", **what)


def end(reason: str = "") -> Decision:
    return Decision("end", reason)


def policy(together: bool = False, elastic: bool = False, **settings: Any) -> FailurePolicy:
    return FailurePolicy(settings=FaultTolerance(**settings), together=together, elastic=elastic)


def history(in_a_row: int = 0, restarts: int = 0, *, dropped: bool = False, succeeded: tuple[str, ...] = ()) -> History:
    return History(restarts=restarts, failures_in_a_row=in_a_row, dropped=dropped, succeeded=set(succeeded))


LOST, RAISED, WRONG = failure(), failure(raised=True), failure(exit_code=EXIT_WRONG_USE)
LATE, SILENT = failure(late=True), failure(PROBE, late=True)
TABLE: dict[str, tuple[FailurePolicy, Failure, History, list[History], Decision]] = {
    "by default the first failure ends the run": (policy(), LOST, history(1), [], end(REMEDY)),
    "what is wrong names no remedy": (policy(), WRONG, history(1), [], end()),
    "ignored while another is left": (policy(**IGNORE), LOST, history(1), [history()], DROP),
    "ignored until none is left": (
        policy(**IGNORE), LOST, history(1), [history(1, dropped=True)],
        end("ignore_worker_failures=True, but none of the 2 is left."),
    ),
    "a first failure is repaired": (policy(**RECREATE), LOST, history(1), [], RESTART),
    "whatever it was": (policy(**RECREATE), WRONG, history(1), [], RESTART),
    "the last restart": (policy(**RECREATE, max_num_worker_restarts=2), LOST, history(1, 1), [], RESTART),
    "no restart is left": (
        policy(**RECREATE, max_num_worker_restarts=2), LOST, history(1, 2), [],
        end("max_num_worker_restarts=2 is used up."),
    ),
    "the restarts of another actor are its own": (
        policy(**RECREATE, max_num_worker_restarts=2), LOST, history(1, 1), [history(0, 2)], RESTART,
    ),
    "as many in a row as are tolerated": (
        policy(**RECREATE, num_consecutive_worker_failures_tolerance=3), LOST, history(2, 1), [history(1)], RESTART,
    ),
    "more in a row, over all actors": (
        policy(**RECREATE, num_consecutive_worker_failures_tolerance=3), LOST, history(2, 1), [history(2)],
        end("4 failures in a row exceed num_consecutive_worker_failures_tolerance=3."),
    ),
    "those of a dropped one no longer count": (
        policy(**IGNORE, num_consecutive_worker_failures_tolerance=1), LOST, history(1),
        [history(1, dropped=True), history()], DROP,
    ),
    "the first of each is free where nodes come and go": (
        policy(elastic=True, **RECREATE, num_consecutive_worker_failures_tolerance=1), LOST, history(2, 1),
        [history(1)], RESTART,
    ),
    "the second of each is not": (
        policy(elastic=True, **RECREATE, num_consecutive_worker_failures_tolerance=1), LOST, history(2, 1),
        [history(2)], end("2 failures in a row exceed num_consecutive_worker_failures_tolerance=1."),
    ),
    "raised in a replacement too, and nowhere done": (policy(**RECREATE), RAISED, history(2, 1), [], end(AGAIN)),
    "wrong in a replacement too, and nowhere done": (policy(**RECREATE), WRONG, history(2, 1), [], end(AGAIN)),
    "raised in a replacement, but done by another": (
        policy(**RECREATE), RAISED, history(2, 1), [history(succeeded=("work",))], RESTART,
    ),
    "another has done something else": (
        policy(**RECREATE), RAISED, history(2, 1), [history(succeeded=(START,))], end(AGAIN),
    ),
    "a process that is lost twice proves nothing": (policy(**RECREATE), LOST, history(2, 1), [], RESTART),
    "raised twice by one that was let go": (policy(**RECREATE), RAISED, history(2, 0), [], RESTART),
    "together, one is not left out but restarted": (policy(together=True, **IGNORE), LOST, history(1), [], RESTART),
    "together, the same data would be wrong again": (
        policy(together=True, **RECREATE), WRONG, history(1), [history()], end(),
    ),
    "together, another start may go well": (
        policy(together=True, **RECREATE), failure(START, exit_code=EXIT_WRONG_USE), history(1), [], RESTART,
    ),
    "an evaluation that takes too long is the user's to see": (
        policy(late_is_an_error=True, **RECREATE), LATE, history(1), [], end("Its limit is the evaluation's own."),
    ),
    "a worker without a sign of life is replaced there too": (
        policy(late_is_an_error=True, **RECREATE), SILENT, history(1), [], RESTART,
    ),
    "elsewhere a late one is replaced": (policy(**RECREATE), LATE, history(1), [], RESTART),
}  # fmt: skip


@pytest.mark.parametrize("case", TABLE)
def test_what_follows_from_a_failure(case: str) -> None:
    decides, failed, own, others, expected = TABLE[case]
    assert decides.decide(failed, own, [*others, own]) == expected


def test_a_row_of_failures_ends_with_what_had_failed() -> None:
    found = History()
    found.fail(failure("update"))
    found.succeed("ping", is_work=False)
    assert (found.failures_in_a_row, found.failure) == (1, failure("update"))
    found.succeed("update", is_work=False)
    assert (found.failures_in_a_row, found.failure) == (0, None)


@pytest.mark.parametrize("method", [START, PROBE])
def test_one_that_was_silent_is_well_when_it_does_anything(method: str) -> None:
    found = History()
    found.fail(failure(method, exit_code=EXIT_FAILED))
    found.succeed("update", is_work=False)
    assert (found.failures_in_a_row, found.failure) == (0, None)


def test_only_work_shows_that_an_actor_works() -> None:
    found = History()
    found.fail(failure())
    found.succeed("set_weights", is_work=False)
    assert not found.works
    found.succeed("work", is_work=True)
    assert found.works
