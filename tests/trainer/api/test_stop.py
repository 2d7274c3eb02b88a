"""Stop keys: misspelt ones get the nearest; that they are what results report is tested with run/metrics."""

from __future__ import annotations

import pytest

from reef.api.stop import stop_key_problem


@pytest.mark.parametrize(
    "key",
    [
        "episode_reward_mean",
        "evaluation/episode_reward_mean",
        "evaluation/my_own_number",
        "evaluation/custom_metrics/height_mean",
        "custom_metrics/height_mean",
        "info/learner/default_policy/learner_stats/kl",
    ],
)
def test_results_and_groups_are_valid(key: str) -> None:
    assert stop_key_problem(key) is None


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("episode_reward_men", "'episode_reward_mean'"),
        ("episode_reward", "'episode_reward_mean'"),
        ("episode_rewards", "'episode_reward_mean'"),
        ("episode_reward_mni", "'episode_reward_min'"),
        ("evaluation/episode_len", "'episode_len_mean'"),
        ("evaluation/episode_reward_men", "'episode_reward_mean'"),
        ("evaluation", "'evaluation/<name>'"),
        ("custom_metrics", "'custom_metrics/<name>'"),
        ("config/lr", "no result field"),
        ("xyzzy", "custom_metrics"),
    ],
)
def test_everything_else_is_refused_with_a_hint(key: str, hint: str) -> None:
    assert hint in (stop_key_problem(key) or "")
