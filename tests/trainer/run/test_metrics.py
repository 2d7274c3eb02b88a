from __future__ import annotations

import itertools
import json
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from reef.api.keys import OPEN_GROUPS, STOP_FIELDS
from reef.batch import Episode, Sample
from reef.rollout.statistics import SamplerPerf
from reef.run.metrics import IterationMetrics, pretty_print, summarize_episodes

ELAPSED = itertools.count(1)  # seconds of an iteration, others for each

TEXT_FIELDS = frozenset(
    {
        "date",
        "done",
        "episode_reward_reason",
        "experiment_id",
        "experiment_tag",
        "hostname",
        "node_ip",
        "trial_id",
    }
)
LIST_GROUPS = frozenset({"config", "episode_media", "hist_stats"})


def make(window: int = 100, **settings: Any) -> IterationMetrics:
    config = SimpleNamespace(
        metrics_num_episodes_for_smoothing=window,
        keep_per_episode_custom_metrics=settings.get("keep", False),
        sampler_perf_stats_ema_coef=settings.get("ema"),
        log_sys_usage=settings.get("log_sys_usage", True),
        to_dict=lambda: {"lr": 1e-3, "clip": math.inf},
    )
    return IterationMetrics(config)


def sample(*rewards: float, steps: int = 10, timers: dict[str, float] | None = None) -> Sample:
    episodes = [Episode(reward, int(reward), {"default_policy": reward}) for reward in rewards]
    return Sample({}, episodes, steps, steps, timers=timers or {})


def counters(steps: int) -> dict[str, int]:
    return {"num_env_steps_sampled": steps, "num_env_steps_trained": steps}


def finish(metrics: IterationMetrics, iteration: int = 1, steps: int = 10, **more: Any) -> dict[str, Any]:
    return metrics.result(iteration, elapsed_s=next(ELAPSED), counters=counters(steps), learner_stats={}, **more)


def test_every_field_is_declared_and_every_declared_field_is_there() -> None:
    result = finish(make(), evaluation={})
    assert set(result) == STOP_FIELDS | TEXT_FIELDS | OPEN_GROUPS | {"evaluation"} | LIST_GROUPS
    json.dumps(result, allow_nan=False)


def test_before_the_first_episode_rewards_are_null_with_a_reason() -> None:
    result = finish(make())
    assert result["episode_reward_mean"] is result["episode_reward_max"] is result["episode_len_mean"] is None
    assert "no episode has ended" in result["episode_reward_reason"]
    assert result["config"]["clip"] is None


def test_window_uses_fewer_then_size_then_all_of_a_long_iteration() -> None:
    metrics = make(window=2)
    metrics.samples.add(sample(1))
    assert finish(metrics)["episode_reward_mean"] == 1
    metrics.samples.add(sample(3))
    assert finish(metrics)["hist_stats"]["episode_reward"] == [1, 3]
    metrics.samples.add(sample(5))
    metrics.samples.add(sample(7, 9))
    result = finish(metrics)
    assert result["hist_stats"]["episode_reward"] == [5, 7, 9]
    assert (result["episodes_this_iter"], result["episodes_total"]) == (3, 5)
    assert finish(metrics)["hist_stats"]["episode_reward"] == [7, 9]


def test_window_of_one_is_the_newest_episode() -> None:
    metrics = make(window=1)
    metrics.samples.add(sample(5, 7, 9))
    result = finish(metrics)
    assert result["hist_stats"]["episode_reward"] == [9]
    assert result["episodes_this_iter"] == 3


def test_counts_of_this_iteration_are_differences() -> None:
    metrics = make()
    finish(metrics, 1, steps=100)
    result = finish(metrics, 2, steps=130)
    assert (result["timesteps_total"], result["timesteps_this_iter"]) == (130, 30)
    assert result["num_env_steps_trained_this_iter"] == 30
    assert result["agent_timesteps_total"] == 130
    assert result["time_total_s"] >= result["time_this_iter_s"] >= 0


def test_custom_metrics_and_histograms() -> None:
    episodes = [
        Episode(1, 1, {"a": 1.0}, {"height": 2.0}, {"angle": [1.0]}),
        Episode(3, 1, {"a": 1.0, "b": 2.0}, {"height": 4.0, "bad": math.nan}, {"angle": [2.0, 3.0]}),
    ]
    summary = summarize_episodes(episodes)
    assert summary["custom_metrics"]["height_mean"] == 3.0
    assert summary["custom_metrics"]["height_min"] == 2.0
    assert summary["custom_metrics"]["height_max"] == 4.0
    assert summary["custom_metrics"]["bad_mean"] is None
    assert summary["hist_stats"]["angle"] == [1.0, 2.0, 3.0]
    assert summary["policy_reward_mean"] == {"a": 1.0, "b": 2.0}
    assert summarize_episodes(episodes, keep_per_episode=True)["custom_metrics"]["height"] == [2.0, 4.0]


def test_machine_load_can_be_left_out() -> None:
    assert "ram_util_percent" in finish(make())["perf"]
    assert finish(make(log_sys_usage=False))["perf"] == {}


def test_learner_stats_timers_and_evaluation() -> None:
    metrics = make()
    result = metrics.result(
        1,
        elapsed_s=1.0,
        counters={},
        learner_stats={"p": {"loss": math.nan}},
        timers={"learn": 0.5},
        evaluation={"x": np.float32(2)},
    )
    assert result["info"]["learner"]["p"]["learner_stats"] == {"loss": None}
    assert result["info"]["exploration"] == {}
    assert result["timers"] == {"learn_time_ms": 500.0}
    assert result["evaluation"] == {"x": 2.0}
    assert "evaluation" not in finish(metrics)


def test_sampler_perf_is_the_mean_or_an_exponential_one() -> None:
    mean, moving = SamplerPerf(None), SamplerPerf(0.5)
    for perf in (mean, moving):
        perf.add({"inference": 1.0}, 10)
        perf.add({"inference": 9.0}, 30)
        perf.add({"inference": 9.0}, 0)
    assert mean.means_ms()["mean_inference_ms"] == pytest.approx(250.0)
    assert moving.means_ms()["mean_inference_ms"] == pytest.approx(200.0)


def test_a_restored_run_reports_the_same_numbers() -> None:
    first = make(window=3)
    first.samples.add(sample(1, 2, timers={"inference": 0.1}))
    finish(first, 1, steps=10)
    first.samples.add(sample(4))  # an iteration under way
    restored = make(window=3)
    restored.set_state(json.loads(json.dumps(first.state())), iteration=1)
    results = []
    for metrics in (first, restored):
        metrics.samples.add(sample(8))
        results.append(finish(metrics, 2, steps=25))
    clock = {k for k in results[0] if "time" in k and "timesteps" not in k} | {"date", "perf"}
    differing = {key for key in results[0] if results[0][key] != results[1][key]} - clock
    assert differing == {
        "iterations_since_restore",
        "timesteps_since_restore",
        "num_env_steps_sampled_throughput_per_sec",
    }
    assert results[1]["timesteps_since_restore"] == 15
    assert results[1]["iterations_since_restore"] == 1


def test_a_result_is_printed_without_what_nobody_reads() -> None:
    result = {
        "training_iteration": 3,
        "config": {"lr": 1},
        "hist_stats": {"x": [1]},
        "none": None,
        "a": {"b": np.float32(0.5)},
    }
    assert pretty_print(result) == "training_iteration: 3\na:\n  b: 0.5\n"
