"""Keys of spec.stop and spec.config: misspelt ones get the nearest, without the trainer's packages.

That stop keys are what results report is tested with run/metrics.

It tests reef.api.known_settings too.
"""

from __future__ import annotations

from typing import Any

import pytest

from reef.api import job_from_document, keys
from reef.api.keys import setting_problems, stop_key_problem, stop_value_problem
from reef.errors import ConfigError


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
        ("episode_return_mean", "'episode_reward_mean'"),
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


def test_values_that_training_can_begin_below_are_valid() -> None:
    valid = {"episode_reward_mean": -200, "time_total_s": 0.5, "num_lost_workers": 0}
    assert [stop_value_problem(key, value) for key, value in valid.items()] == [None] * 3


@pytest.mark.parametrize("value", [0, -5, float("-inf")])
@pytest.mark.parametrize("key", ["training_iteration", "num_env_steps_sampled", "time_since_restore"])
def test_a_counter_is_to_reach_more_than_0(key: str, value: float) -> None:
    assert "Give a number above 0" in (stop_value_problem(key, value) or "")


@pytest.mark.parametrize(
    ("algorithm", "config", "problems"),
    [
        ("PPO", {"lr": 0.1, "num_workers": 2, "model": {"fcnet_hiddens": [8]}, "multiagent": {}}, []),
        ("ppo", {"gama": 0.9}, ["gama: PPO has no such setting. Did you mean 'gamma'?"]),
        (
            "DQN",
            {"clip_param": 0.1, "xyzzy": 1},
            ["clip_param: DQN has no such setting. It is one of", "xyzzy: DQN"],
        ),
        ("DQN", {"replay_buffer_config": {"capcity": 9}}, ["replay_buffer_config.capcity: DQN has no such setting."]),
        ("PPO", {"model": {"fcnet_hidens": [8]}}, ["model.fcnet_hidens: PPO has no such setting. Did you mean"]),
        (
            "PPO",
            {"evaluation_config": {"explor": False, "model": {"dimm": 1}}},
            ["evaluation_config.explor: ", "model.d"],
        ),
        (
            "PPO",
            {"env_config": {"gama": 1}, "model": {"custom_model_config": {"gama": 1}}, "exploration_config": {"x": 1}},
            [],
        ),
        ("DQN", {"entropy_coeff_schedule": None, "evaluation_config": {"vf_loss_coeff_schedule": None}}, []),
        ("PPO", {"model": {1: 2}}, ["model.1: PPO has no such setting."]),
        ("DQN", {"entropy_coeff_schedule": 0.1}, ["entropy_coeff_schedule: DQN has no such setting."]),
        ("my_algorithms:Own", {"gama": 0.9}, []),
        ("POP", {"gama": 0.9}, []),
    ],
)
def test_keys_that_no_setting_has_are_named(algorithm: str, config: dict[str, Any], problems: list[str]) -> None:
    said = [*setting_problems(algorithm, config)]
    assert len(said) == len(problems)
    assert all(part in text for part, text in zip(problems, said, strict=True))


def test_of_many_wrong_keys_ten_are_named_and_the_others_counted() -> None:
    looked_up: list[str] = []
    config = {f"nun_workers_{number}": number for number in range(40_000)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "nearest", lambda name, choices: looked_up.append(name) or "")
        said = [*setting_problems("PPO", config)]
    assert len(said) == 11 and len(looked_up) == 10, "a hint takes milliseconds"
    assert said[0].startswith("nun_workers_0: ") and said[-1] == "and 39990 more keys that are no settings of PPO"


def test_a_key_without_end_is_not_compared_and_not_shown_whole() -> None:
    spec = {"algorithm": "PPO", "environment": {"name": "E"}, "stop": {"training_iteration": 1}}
    document = {"apiVersion": "reef.dev/v1", "kind": "RLTrainingJob", "metadata": {"name": "job"}}
    for wrong in ({"config": {"l" * 200_000: 1}}, {"l" * 200_000: 1}, {"image": ["x" * 200_000]}):
        with pytest.raises(ConfigError) as refused:
            job_from_document({**document, "spec": spec | wrong})
        assert len(str(refused.value)) < 2000


def test_of_many_wrong_fields_ten_are_named_and_the_others_counted() -> None:
    document = {"apiVersion": "reef.dev/v1", "kind": "RLTrainingJob", "metadata": {"name": "job"}}
    spec = {"algorithm": "PPO", "environment": {"name": "E"}, "stop": {"training_iteration": 1}}
    with pytest.raises(ConfigError, match=r"(?s)50 problems.*field0.*field9.*and 40 more$") as refused:
        job_from_document({**document, "spec": spec | {f"field{number}": 1 for number in range(50)}})
    assert "field10" not in str(refused.value)


def test_all_of_them_come_together_with_what_else_is_wrong() -> None:
    spec = {
        "algorithm": "PPO",
        "environment": {"name": "CartPole-v1"},
        "stop": {"reward": 1},
        "config": {"gama": 1, "lrr": 1},
    }
    document = {"apiVersion": "reef.dev/v1", "kind": "RLTrainingJob", "metadata": {"name": "job"}, "spec": spec}
    with pytest.raises(ConfigError, match=r"(?s)config.*gama.*'gamma'.*lrr.*'lr'.*reward"):
        job_from_document(document)
