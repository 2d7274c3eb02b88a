"""What the owner of a job hears of the step from one status to the next."""

from __future__ import annotations

import pytest

from reef.api import JobStatus
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
