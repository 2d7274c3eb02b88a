"""The log says what is learned from: reef.run.reporters.batches."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from reef.algorithms.ppo import PPOConfig
from reef.batch import KeptRollouts, Perturbations
from reef.run.events import BatchLearned, Events
from reef.run.reporters import batches
from reef.run.reporters.batches import BatchSummaries, summarize_batches, summary_of


def learned() -> BatchLearned:
    updates = dict.fromkeys(["p"])
    return BatchLearned(updates, {"p": Perturbations(np.array([3, 4]), np.array([[1.0, 2.0], [3.0, 6.0]]))})  # type: ignore[arg-type]


@pytest.mark.parametrize(("level", "expected"), [("INFO", 1), ("DEBUG", 3), ("WARNING", 0)])
def test_once_at_info_and_again_at_debug(
    level: str, expected: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    caplog.set_level(level, logger="reef")
    now = [0.0]
    monkeypatch.setattr(batches.time, "monotonic", lambda: now[0])
    summaries = BatchSummaries()
    for seconds in (0.0, 1.0, 11.0, 12.0, 30.0):
        now[0] = seconds
        summaries.learned(learned())
    assert len(caplog.records) == expected


def test_arrays_are_named_with_what_they_hold():
    text = summary_of(learned().batches["p"])
    assert text.splitlines()[1:] == [
        "  indices: int64 [2], min 3, mean 3.5, max 4",
        "  returns: float64 [2, 2], min 1, mean 3, max 6",
    ]
    assert summary_of([learned().batches["p"]] * 3).startswith("6 steps in 3 parts, of which the first (Pert")
    assert summary_of(KeptRollouts({1: 5})) == "5 steps (KeptRollouts), which stay in the workers"


def test_ppo_logs_its_first_batch(caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO", logger="reef")
    settings = {"env": "CartPole-v1", "train_batch_size": 64, "sgd_minibatch_size": 64, "num_sgd_iter": 1}
    with PPOConfig().update_from_dict(settings).build() as algorithm:
        algorithm.train()
        algorithm.train()
    (text,) = [record.message for record in caplog.records if "learned from" in record.message]
    assert text.startswith("learned from for 'default_policy': 64 steps (Rollout)\n  obs: float32 [64, 1, 4], min -")
    assert "\n  rewards: float32 [64, 1], min 1, mean 1, max 1" in text
    assert "\n  extras.action_logp: float32 [64, 1], min -" in text


def test_a_quiet_log_costs_nothing(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING, logger="reef")
    events = Events()
    summarize_batches(events)
    events.emit(pytest.fail, "a handler was called")
    assert not events._handlers
