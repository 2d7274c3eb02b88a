"""What heads say is checked: users' code has a hand in it."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reef.job.progress import HeadState
from reef_operator.reading.reports import Report, read_report

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
KEYS = ["state", "message", "workersRecreated", "training", "evaluation", "checkpoint", "bestTrial", "trials"]


def test_a_whole_report() -> None:
    report = read_report(
        {
            "state": "training",
            "message": "",
            "workersRecreated": 2,
            "training": {"iteration": 3, "timesteps": 300, "rewardMean": 21, "somethingNewer": 1},
            "evaluation": {"iteration": 2, "episodes": 5},
            "checkpoint": {"path": "/c", "iteration": 2, "time": "2026-01-01T00:00:00Z"},
            "bestTrial": {"name": "t1", "config": {"lr": 0.1}, "metric": 9.0, "iteration": 4},
            "trials": {"total": 3, "running": 1, "finished": 1},
        }
    )
    assert report.state == "training" and report.workers_recreated == 2
    assert report.training and report.training.reward_mean == 21
    assert report.evaluation and report.checkpoint and report.best_trial
    assert (report.best_trial.config, report.best_trial.iteration) == ({"lr": 0.1}, 4)
    assert report.trials and (report.trials.total, report.trials.failed) == (3, 0)


def test_numbers_are_as_long_as_a_table_shows_them() -> None:
    numbers = {"iteration": 3, "timesteps": 1234567, "rewardMean": 90.63783783783784, "rewardMin": -0.0012345678}
    report = read_report({"training": numbers, "evaluation": numbers | {"rewardMean": 171.33333333333334}})
    assert report.training and (report.training.reward_mean, report.training.timesteps) == (90.6378, 1234567)
    assert report.training.reward_min == -0.00123457
    assert report.evaluation and report.evaluation.reward_mean == 171.333


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_the_api_server_does_not_take_are_left_out(value: float) -> None:
    training = read_report({"training": {"iteration": 1, "rewardMean": value}}).training
    assert training and training.reward_mean is None


@pytest.mark.parametrize(
    "document",
    [
        {"training": {"iteration": "three"}},
        {"training": [1]},
        {"checkpoint": {"path": "/c"}},
        {"bestTrial": {"name": "t", "config": {"blob": "x" * 5000}}},
        {"trials": {"total": "three"}},
        {"workersRecreated": -1},
        {"workersRecreated": "2"},
        {"workersRecreated": True},
        {"workersRecreated": 10**30},
        {"training": {"iteration": 10**30}},
        {"exitCode": 2**63},
        {"state": 5},
    ],
)
def test_a_malformed_part_is_left_out(document: dict[str, Any]) -> None:
    assert read_report(document) == Report()


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.dictionaries(st.sampled_from(KEYS), JSON))
def test_nothing_that_a_head_says_breaks_the_reader(document: dict[str, Any]) -> None:
    assert read_report(document).workers_recreated >= 0


def test_what_a_head_really_says_is_understood() -> None:
    head_state = HeadState()
    head_state.enter("waiting", "1 of 2 workers")
    report = read_report(head_state.progress())
    assert (report.state, report.message, report.training) == ("waiting", "1 of 2 workers", None)
    ending = read_report(json.loads(head_state.ending(2, "spec.config.lr: is no number")))
    assert (ending.exit_code, ending.message) == (2, "spec.config.lr: is no number")
