"""Conditions keep the time of their last change; reasons and types are a closed set that kubectl can print."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from job_objects import NOW, at

from reef.api.status import Condition
from reef_operator.conditions import MAX_MESSAGE, ConditionType, Finding, Reason, find, kept_times, moment, timestamp

LATER = NOW + timedelta(seconds=30)


def condition(finding: Finding, old: list[Condition]) -> Condition:
    (found,) = kept_times([finding], old, LATER, 3)
    return found


@pytest.mark.parametrize(
    ("holds", "reason", "since"),
    [(True, Reason.READY, 0), (True, Reason.NO_WORKERS, 0), (False, Reason.STARTING, 30), (None, Reason.STARTING, 30)],
)
def test_the_time_is_that_of_the_last_change_of_status(holds: bool | None, reason: Reason, since: float) -> None:
    old = kept_times([Finding(ConditionType.HEAD_READY, True, Reason.READY)], [], NOW, 1)
    found = condition(Finding(ConditionType.HEAD_READY, holds, reason, "why"), old)
    assert found.last_transition_time == at(since)
    assert (found.reason, found.message, found.observed_generation) == (reason, "why", 3)
    assert found.status == {True: "True", False: "False", None: "Unknown"}[holds]


def test_long_messages_are_cut() -> None:
    message = condition(Finding(ConditionType.FAILED, True, Reason.JOB_WRONG, "x" * 5000), []).message
    assert len(message) == MAX_MESSAGE and message.endswith("…")


def test_find() -> None:
    conditions = kept_times([Finding(ConditionType.FAILED, True, Reason.JOB_WRONG)], [], NOW, None)
    assert find(conditions, ConditionType.FAILED) is conditions[0] and find(conditions, ConditionType.RUNNING) is None


def test_times() -> None:
    assert timestamp(NOW) == "2026-01-01T12:00:00Z" and moment(timestamp(NOW)) == NOW
    assert moment("2026-01-01T12:00:00") == NOW and moment("2026-01-01T12:00:00.000000Z") == NOW
    assert timestamp(NOW.astimezone()) == timestamp(NOW)


@pytest.mark.parametrize("word", [*Reason, *ConditionType])
def test_words_are_those_of_an_api(word: str) -> None:
    assert re.fullmatch(r"[A-Z][A-Za-z]{3,62}", word)
