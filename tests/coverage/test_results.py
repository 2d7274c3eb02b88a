"""The fields of a result, in a run of two iterations that was restored in between."""

from __future__ import annotations

import os
import socket
import time
from datetime import datetime
from typing import Any

import pytest

from reef import PPOConfig

STEPS = 128


def config() -> PPOConfig:
    made = PPOConfig().environment("CartPole-v1").rollouts(num_envs_per_worker=2).debugging(seed=1)
    made.training(train_batch_size=STEPS, sgd_minibatch_size=64, num_sgd_iter=1, model={"fcnet_hiddens": [4]})
    return made.evaluation(evaluation_interval=2, evaluation_duration=3)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The results of two iterations, and of a second one that goes on from a checkpoint after the first."""
    with config().build() as one, config().build() as other:
        first = one.train()
        path = one.save(tmp_path_factory.mktemp("results") / "checkpoint")
        second = one.train()
        other.restore(path)
        return first, second, other.train()


def test_rewards_and_lengths_are_those_of_the_episodes(run: Any) -> None:
    result = run[1]
    rewards, lengths = result["hist_stats"]["episode_reward"], result["hist_stats"]["episode_lengths"]
    assert result["episode_reward_max"] == max(rewards) >= result["episode_reward_mean"] >= min(rewards)
    assert result["episode_reward_min"] == min(rewards)
    assert result["episode_reward_mean"] == pytest.approx(sum(rewards) / len(rewards))
    assert result["episode_len_mean"] == pytest.approx(sum(lengths) / len(lengths))
    assert rewards == lengths, "of CartPole"
    for name in ("max", "min", "mean"):
        assert result[f"policy_reward_{name}"] == {"default_policy": result[f"episode_reward_{name}"]}


def test_episodes_are_counted(run: Any) -> None:
    first, second, _ = run
    assert first["episodes_this_iter"] == first["episodes_total"] == len(first["hist_stats"]["episode_reward"])
    assert second["episodes_total"] == first["episodes_total"] + second["episodes_this_iter"]


@pytest.mark.parametrize(
    "field",
    [
        *("timesteps_total", "agent_timesteps_total", "num_env_steps_sampled", "num_env_steps_trained"),
        *("num_agent_steps_sampled", "num_agent_steps_trained"),
    ],
)
def test_steps_are_counted(field: str, run: Any) -> None:
    assert [result[field] for result in run] == [STEPS, 2 * STEPS, 2 * STEPS]
    assert run[1]["counters"].get(field, 2 * STEPS) == 2 * STEPS


def test_what_happened_in_the_iteration_alone(run: Any) -> None:
    assert [result["timesteps_this_iter"] for result in run] == [STEPS] * 3
    assert [result["training_iteration"] for result in run] == [1, 2, 2]
    assert all(result["timers"]["learn_time_ms"] > 0 for result in run)
    assert run[1]["counters"]["num_env_steps_sampled"] == 2 * STEPS


def test_the_learner_reports_by_policy(run: Any) -> None:
    statistics = run[1]["info"]["learner"]["default_policy"]["learner_stats"]
    assert statistics["cur_lr"] == pytest.approx(5e-5)
    assert {"total_loss", "entropy", "kl"} <= statistics.keys()


def test_an_evaluation_is_in_the_iteration_that_had_one(run: Any) -> None:
    assert ["evaluation" in result for result in run] == [False, True, True]
    assert run[1]["evaluation"]["episodes_this_iter"] == 3


def test_times_and_what_counts_from_a_restore(run: Any) -> None:
    first, second, restored = run
    assert second["time_total_s"] == pytest.approx(first["time_total_s"] + second["time_this_iter_s"], abs=1e-3)
    assert [result["iterations_since_restore"] for result in run] == [1, 2, 1]
    assert [result["timesteps_since_restore"] for result in run] == [STEPS, 2 * STEPS, STEPS]
    assert restored["time_since_restore"] < restored["time_total_s"]
    assert 0 <= time.time() - second["timestamp"] < 600
    assert abs(datetime.fromtimestamp(second["timestamp"]) - when(second["date"])).total_seconds() < 2


def when(text: str) -> datetime:
    form = "%Y-%m-%d_%H-%M-%S" if "_" in text else "%Y-%m-%d %H:%M:%S"
    return datetime.strptime(text.replace("T", " ")[:19], form)


def test_where_it_was_trained(run: Any) -> None:
    result = run[1]
    assert (result["pid"], result["hostname"]) == (os.getpid(), socket.gethostname())
    socket.inet_aton(result["node_ip"])
    assert result["config"]["train_batch_size"] == STEPS
    assert 0 <= result["perf"]["cpu_util_percent"] <= 100
    assert 0 < result["perf"]["ram_util_percent"] <= 100
    assert result["num_healthy_workers"] == 0, "there are none"
    assert result["done"] is False


def test_waiting_and_acting_are_timed(run: Any) -> None:
    assert run[1]["sampler_perf"]["mean_env_wait_ms"] > 0
    assert run[1]["sampler_perf"]["mean_inference_ms"] > 0
