"""Settings that have no effect are named; those that the network decides are in tests/trainer/nn/test_policies.py."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from reef import A3CConfig, DQNConfig, PPOConfig, SACConfig
from reef.config import AlgorithmConfig
from reef.config.ignored import ignored_beside_others

RECORDED = {"input_": "episodes.json", "rollout_fragment_length": 50, "batch_mode": "complete_episodes"}


@pytest.mark.parametrize(
    ("kind", "settings", "expected"),
    [
        (PPOConfig, {"grad_clip_by": "norm"}, ["grad_clip_by='norm' has no effect without grad_clip."]),
        (PPOConfig, {"grad_clip_by": "norm", "grad_clip": 1.0}, []),
        (DQNConfig, {"grad_clip_by": "norm"}, []),
        (
            PPOConfig,
            {"train_batch_size": 10, "train_batch_size_per_learner": 20},
            ["train_batch_size=10 has no effect beside train_batch_size_per_learner."],
        ),
        (
            PPOConfig,
            {"max_requests_in_flight_per_sampler_worker": 3},
            ["max_requests_in_flight_per_sampler_worker=3 has no effect without sample_async."],
        ),
        (A3CConfig, {"max_requests_in_flight_per_sampler_worker": 3}, []),
        (
            PPOConfig,
            {"synchronize_filters": False, "create_env_on_local_worker": True},
            [
                "create_env_on_local_worker=True has no effect without rollout workers in processes of their own.",
                "synchronize_filters=False has no effect without rollout workers in processes of their own.",
            ],
        ),
        (PPOConfig, {"synchronize_filters": False, "num_rollout_workers": 1}, []),
        (
            PPOConfig,
            {"observation_filter": "MeanStdFilter", "use_worker_filter_stats": False, "num_rollout_workers": 1},
            ["use_worker_filter_stats=False leaves evaluation and checkpoints without the filter of the workers."],
        ),
        (
            PPOConfig,
            {
                "validate_workers_after_construction": False,
                "extra_python_environs_for_worker": {"KEY": "value"},
                "custom_resources_per_worker": {"disk": 1},
                "num_cpus_per_worker": 2,
            },
            [
                "validate_workers_after_construction=False has no effect without workers in processes of their own.",
                "extra_python_environs_for_worker={'KEY': 'value'} has no effect without workers in processes of "
                "their own.",
                "custom_resources_per_worker={'disk': 1.0} has no effect without workers in processes of their own.",
                "num_cpus_per_worker=2.0 has no effect without workers in processes of their own.",
            ],
        ),
        (PPOConfig, {"num_cpus_per_worker": 2, "evaluation_num_workers": 1}, []),
        (PPOConfig, {"num_cpus_per_worker": 2, "num_rollout_workers": 1}, []),
        (
            DQNConfig,
            {"exploration_config": {"epsilon_schedule": [[0, 1.0], [9, 0.1]], "final_epsilon": 0.1}},
            ["exploration_config.final_epsilon=0.1 has no effect beside exploration_config.epsilon_schedule."],
        ),
        (
            DQNConfig,
            {
                "exploration_config": {
                    "type": "ParameterNoise",
                    "sub_exploration": {"epsilon_schedule": [[0, 1.0]], "warmup_timesteps": 3},
                }
            },
            [
                "exploration_config.sub_exploration.warmup_timesteps=3 has no effect beside "
                "exploration_config.sub_exploration.epsilon_schedule."
            ],
        ),
        (DQNConfig, {"exploration_config": {"final_epsilon": 0.1}}, []),
        (
            DQNConfig,
            RECORDED | {"exploration_config": {"type": "Random"}},
            [
                "rollout_fragment_length=50 has no effect with input_, as no steps are sampled to learn from.",
                "batch_mode='complete_episodes' has no effect with input_, as no steps are sampled to learn from.",
            ],
        ),
        (DQNConfig, {"input_": "e.json", "explore": False}, []),  # compute_single_action reads it
        (
            SACConfig,
            {"replay_buffer_config": {"prioritized_replay_beta": 1.0}},
            [
                "replay_buffer_config.prioritized_replay_beta=1.0 has no effect without "
                "replay_buffer_config.prioritized_replay."
            ],
        ),
        (DQNConfig, {"replay_buffer_config": {"prioritized_replay_beta": 1.0}}, []),
    ],
)
def test_what_another_setting_switches_off_is_told(
    kind: type[AlgorithmConfig], settings: dict[str, Any], expected: list[str]
) -> None:
    assert list(ignored_beside_others(kind.from_dict(settings))) == expected


def test_a_run_says_it_once(caplog: pytest.LogCaptureFixture) -> None:
    config = PPOConfig().environment("CartPole-v1").training(grad_clip_by="value")
    with caplog.at_level(logging.WARNING, logger="reef"):
        config.build().stop()
    assert caplog.messages == ["grad_clip_by='value' has no effect without grad_clip."]


@pytest.mark.parametrize("kind", [PPOConfig, DQNConfig, SACConfig, A3CConfig])
def test_of_the_defaults_nothing_is_told(kind: type[AlgorithmConfig]) -> None:
    assert list(ignored_beside_others(kind())) == []
