"""What the owner of a job hears of the step from one status to the next."""

from __future__ import annotations

import pytest

from reef.api import JobStatus
from reef.api.status import Condition
from reef_operator.conditions import Reason
from reef_operator.events import transitions
from reef_operator.phases import Outcome


@pytest.mark.parametrize(
    ("attempts", "message"),
    [
        (0, "the job is no longer suspended and starts for the first time"),
        (1, "the job is resumed from its newest checkpoint"),
    ],
)
def test_a_job_that_never_ran_is_not_resumed_from_a_checkpoint(attempts: int, message: str) -> None:
    old, new = (JobStatus(phase=phase, attempts=attempts) for phase in ("Suspended", "Pending"))
    (event,) = transitions(old, new, Outcome("Pending", Reason.PENDING, "the head pod starts"))
    assert (event.type, event.reason, event.message) == ("Normal", "Resumed", message)


def test_a_job_without_storage_is_not_resumed_from_a_checkpoint() -> None:
    lost = Condition(
        type="StorageDurable",
        status="False",
        reason="NotDurable",
        message="",
        last_transition_time="2026-01-01T12:00:00Z",
    )
    old, new = JobStatus(phase="Suspended", attempts=1), JobStatus(phase="Pending", attempts=1, conditions=[lost])
    told = [event.message for event in transitions(old, new, Outcome("Pending", Reason.PENDING, "the head pod starts"))]
    assert "the job is resumed from its beginning, as spec.checkpoint.storage is not given" in told
