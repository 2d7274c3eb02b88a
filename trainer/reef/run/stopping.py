"""When a run ends: `{"episode_reward_mean": 450, "evaluation/episode_len_mean": 100}`, the first one reached stops."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from reef.api.keys import GROWING_FIELDS, stop_key_problem, stop_value_problem
from reef.errors import ConfigError
from reef.run.metrics import Result

if TYPE_CHECKING:
    from reef.config import AlgorithmConfig


class StopConditions:
    """Thresholds on numeric result fields; a field that reaches its threshold ends the run."""

    def __init__(self, conditions: Mapping[str, float]) -> None:
        """Raises `ConfigError` with all problems, so that nothing starts under a condition that cannot come true."""
        if problems := stop_problems(conditions):
            raise ConfigError("\n".join(problems))
        self._conditions = dict(conditions)

    def reached(self, result: Result) -> str | None:
        """The condition that `result` meets ("episode_reward_mean 451.2 >= 450"), or None."""
        for key, threshold in self._conditions.items():
            value = lookup(result, key)
            if value is not None and value >= threshold:
                return f"{key} {value:g} >= {threshold:g}"
        return None

    def check(self, result: Result) -> None:
        """Raise `ConfigError` for a key at which `result` has something else than a number, so that it is never met."""
        for key in self._conditions:
            value = _at(result, key)
            if isinstance(value, Mapping):
                raise ConfigError(f"stop: key {key!r} is a group of results: name a number in it, as '{key}/<name>'.")
            if value is not None and lookup(result, key) is None:
                raise ConfigError(f"stop: key {key!r} is {value!r} in the result, which is no number. Name one.")

    def absent(self, result: Result) -> list[str]:
        """Keys that match no numeric field of `result`, of those that could, as an episode or evaluation has ended.

        Such as "custom_metrics/heigth_mean": only the running training knows which names there are. Statistics of
        learners may begin later.
        """
        if lookup(result, "episode_reward_mean") is None:
            return []
        could = [key for key in self._conditions if not key.startswith("evaluation/") or "evaluation" in result]
        return [key for key in could if not key.startswith("info/") and lookup(result, key) is None]

    def progress(self, result: Result) -> float:
        """How far the run is, 0 to 1, by the steps, iterations or seconds that end it first; 0 when none does."""
        shares = [
            value / threshold
            for key, threshold in self._conditions.items()
            if key in GROWING_FIELDS and (value := lookup(result, key)) is not None
        ]
        return min(1.0, max(shares, default=0.0))


def stop_problems(conditions: Mapping[str, float]) -> list[str]:
    """Every problem of a `stop` setting, as a sentence for the person who wrote it."""
    problems = []
    for key, threshold in conditions.items():
        if problem := stop_key_problem(str(key)):
            problems.append(f"stop: key {key!r} {problem}")
        if isinstance(threshold, bool) or not isinstance(threshold, int | float) or math.isnan(threshold):
            problems.append(f"stop: {key} is {threshold!r}, which is no number: give the value at which to stop.")
        elif problem := stop_value_problem(key, threshold):
            problems.append(f"stop: key {key!r} {problem}")
    return problems


def absence(key: str, config: AlgorithmConfig) -> str | None:
    """Say why a result field never comes with these settings, or None."""
    if key.startswith("evaluation/") and not config.evaluation_interval:
        return "is never there without evaluations. Set config.evaluation_interval."
    return None


def lookup(result: Mapping[str, Any], key: str) -> float | None:
    """The number at `key` (slashes lead into groups), or None where there is none yet."""
    value = _at(result, key)
    return None if isinstance(value, bool) or not isinstance(value, int | float) else value


def _at(result: Mapping[str, Any], key: str) -> Any:
    value: Any = result
    for name in key.split("/"):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
