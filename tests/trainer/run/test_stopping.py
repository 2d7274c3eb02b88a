from __future__ import annotations

import math
from typing import Any

import pytest

from reef.api.keys import GROWING_FIELDS, SINCE_RESTORE, STOP_FIELDS
from reef.errors import ConfigError
from reef.run.stopping import StopConditions, lookup

RESULT: dict[str, Any] = {
    "training_iteration": 5,
    "episode_reward_mean": None,
    "done": True,
    "evaluation": {"episode_reward_mean": 20.0, "foo": 1},
    "info": {"learner": {"default_policy": {"learner_stats": {"kl": 0.02}}}},
}


@pytest.mark.parametrize(
    ("conditions", "reason"),
    [
        ({}, None),
        ({"training_iteration": 6}, None),
        ({"training_iteration": 5}, "training_iteration 5 >= 5"),
        ({"episode_reward_mean": -100}, None),
        (
            {"training_iteration": 6, "evaluation/episode_reward_mean": 19.5},
            "evaluation/episode_reward_mean 20 >= 19.5",
        ),
        ({"info/learner/default_policy/learner_stats/kl": 0.01}, "0.02 >= 0.01"),
        ({"custom_metrics/height_mean": 1}, None),
    ],
)
def test_the_first_condition_reached_stops(conditions: dict[str, float], reason: str | None) -> None:
    reached = StopConditions(conditions).reached(RESULT)
    assert reached is None if reason is None else reason in str(reached)


@pytest.mark.parametrize(
    ("conditions", "text"),
    [
        ({"episode_reward_meen": 1}, "Did you mean 'episode_reward_mean'?"),
        ({"evaluation/episode_reward_meen": 1}, "Did you mean 'episode_reward_mean'?"),
        ({"hostname": 1}, "'hostname' is no result field"),
        ({"hist_stats/episode_reward": 1}, "is no result field"),
        ({"evaluation": 1}, "'evaluation/<name>'"),
        ({"training_iteration": "5"}, "'5', which is no number"),
        ({"training_iteration": True}, "True, which is no number"),
        ({"training_iteration": math.nan}, "nan, which is no number"),
        ({"timesteps_total": 0}, "key 'timesteps_total' is 0, which is reached before training begins"),
    ],
)
def test_wrong_conditions_are_refused(conditions: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as error:
        StopConditions(conditions)
    assert text in str(error.value)


def test_keys_that_nothing_answers_to_are_found_once_they_could_be_there() -> None:
    conditions = StopConditions({"custom_metrics/x_mean": 1, "evaluation/custom_metrics/y_mean": 1, "timers/z": 1})
    assert conditions.absent(RESULT) == [], "no episode has ended"
    ended = {**RESULT, "episode_reward_mean": 1.0, "custom_metrics": {"x_mean": 0.5}}
    assert conditions.absent(ended) == ["evaluation/custom_metrics/y_mean", "timers/z"]
    del ended["evaluation"]
    assert conditions.absent(ended) == ["timers/z"]


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (
            "info/learner",
            "stop: key 'info/learner' is a group of results: name a number in it, as 'info/learner/<name>'",
        ),
        ("evaluation/solved", "stop: key 'evaluation/solved' is True in the result, which is no number"),
        ("custom_metrics/x", r"stop: key 'custom_metrics/x' is \[1.0\] in the result, which is no number"),
    ],
)
def test_what_is_no_number_in_a_result_is_refused(key: str, text: str) -> None:
    result = {**RESULT, "evaluation": {"solved": True}, "custom_metrics": {"x": [1.0]}}
    with pytest.raises(ConfigError, match=text):
        StopConditions({"training_iteration": 6, key: 1}).check(result)
    StopConditions({"episode_reward_mean": 6, "timers/z": 1, "info/learner/a/learner_stats/kl": 1}).check(result)


def test_all_problems_come_together() -> None:
    with pytest.raises(ConfigError) as error:
        StopConditions({"nonsense": 1, "training_iteration": None})  # type: ignore[dict-item]
    assert len(str(error.value).splitlines()) == 2


def test_growing_fields_are_stop_fields() -> None:
    assert STOP_FIELDS >= GROWING_FIELDS | SINCE_RESTORE


def test_progress_is_the_share_of_the_nearest_limit() -> None:
    result = {"training_iteration": 5, "timesteps_total": 900, "episode_reward_mean": 100.0}
    conditions = StopConditions({"training_iteration": 10, "timesteps_total": 1000, "episode_reward_mean": 100})
    assert conditions.progress(result) == pytest.approx(0.9)
    assert StopConditions({}).progress(result) == 0.0


def test_lookup_ignores_what_is_no_number() -> None:
    assert lookup(RESULT, "done") is None
    assert lookup(RESULT, "evaluation/episode_reward_mean/deeper") is None
