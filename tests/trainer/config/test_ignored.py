"""Settings that have no effect are named; those that the network decides are in tests/trainer/nn/test_policies.py."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from reef import A3CConfig, DQNConfig, PPOConfig, SACConfig
from reef.config import AlgorithmConfig
from reef.config.ignored import ignored_beside_others


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
