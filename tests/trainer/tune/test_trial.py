"""How a trial ends whose files an object store has to get first."""

from __future__ import annotations

from typing import Any

import pytest

from reef.errors import StoreUnavailableError
from reef.run.remote.mirror import Missing
from reef.sweep.folders import Order
from reef.tune import trial
from reef.tune.trial import TrialFiles

THROUGH, CALLED_OFF = Order("training_iteration 3 >= 3", finished=True), Order("SIGTERM", finished=False)
UNDER_WAY, REFUSED = Missing("it is still under way", hopeless=False), Missing("no right to write", hopeless=True)


def files(monkeypatch: pytest.MonkeyPatch, missing: list[Missing | None], orders: list[Order | None]) -> TrialFiles:
    """Those of a trial whose keeper answers so, one after the other; the last answer stays."""
    monkeypatch.setattr(trial, "LOOK_AGAIN_S", 0.0)
    answers: dict[str, list[Any]] = {"missing": missing, "order": orders, "finish": [None]}
    made = TrialFiles("trial_0001", None)

    def ask(method: str, *_: Any) -> Any:
        return answers[method].pop(0) if len(answers[method]) > 1 else answers[method][0]

    monkeypatch.setattr(made, "ask", ask)
    return made


def test_one_that_is_through_waits_for_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = [UNDER_WAY, UNDER_WAY, None]
    assert files(monkeypatch, missing, [None]).end(THROUGH) == THROUGH
    assert missing == [None]


def test_one_that_goes_on_later_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert files(monkeypatch, [UNDER_WAY], [None]).end(CALLED_OFF) == CALLED_OFF


def test_when_the_sweep_is_to_end_it_goes_on_later(monkeypatch: pytest.MonkeyPatch) -> None:
    assert files(monkeypatch, [UNDER_WAY], [None, CALLED_OFF]).end(THROUGH) == CALLED_OFF


def test_a_store_that_refuses_or_takes_too_long_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoreUnavailableError, match="no right to write"):
        files(monkeypatch, [REFUSED], [None]).end(THROUGH)
    monkeypatch.setattr(trial, "END_S", -1.0)
    with pytest.raises(StoreUnavailableError, match="under way"):
        files(monkeypatch, [UNDER_WAY], [None]).end(THROUGH)
