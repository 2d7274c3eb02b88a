from __future__ import annotations

import http.client
import json
import math
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from reef.api.status import TrialsStatus, TrialStatus
from reef.errors import ResourceError
from reef.run.prometheus import MetricsServer, RunState
from reef.run.reporters.reporter import Applications, Run, Summary
from reef.run.stopping import StopConditions

RESULT: dict[str, Any] = {
    "training_iteration": 3,
    "timesteps_total": 12000,
    "num_env_steps_sampled": 12000,
    "num_env_steps_trained": 12000,
    "num_agent_steps_sampled": 12000,
    "num_agent_steps_trained": 12000,
    "episodes_total": 40,
    "episode_reward_mean": 20.5,
    "episode_reward_min": 9.0,
    "episode_reward_max": 90.0,
    "episode_len_mean": 20.5,
    "num_env_steps_sampled_throughput_per_sec": 4000.0,
    "time_this_iter_s": 1.0,
    "time_total_s": 3.0,
    "timestamp": 1700000000,
    "timers": {"sample_time_ms": 250.0, "learn_time_ms": 700.0},
    "num_healthy_workers": 1,
    "num_waiting_workers": 2,
    "num_lost_workers": 1,
    "num_worker_restarts": 4,
    "info": {
        "learner": {
            "default_policy": {
                "learner_stats": {"total_loss": 0.5, "kl": 0.01, "cur_lr": 3e-4, "cur_kl_coeff": 0.2, "entropy": None}
            }
        }
    },
    "evaluation": {"episode_reward_mean": 30.0, "episode_reward_min": 1.0, "episodes_this_iter": 10},
}


@pytest.fixture
def run_state() -> RunState:
    run_state = RunState()
    config = {"num_rollout_workers": 2}
    run_state.start(
        Run(folder=Path("/r"), algorithm="PPO", environment="CartPole-v1", config=config, stop=StopConditions({}))
    )
    return run_state


@pytest.fixture
def server(run_state: RunState) -> Iterator[MetricsServer]:
    server = MetricsServer(run_state, 0)
    yield server
    server.stop()


def get(server: MetricsServer, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    connection.request("GET", path)
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    return response.status, body


def series(server: MetricsServer) -> dict[str, float]:
    families = list(text_string_to_metric_families(get(server, "/metrics")[1]))
    assert all(family.documentation for family in families)
    return {
        sample.name + "".join(f"|{value}" for value in sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }


def test_before_the_first_result(server: MetricsServer) -> None:
    assert series(server) == {"reef_training_info|PPO|CartPole-v1": 1.0}
    assert get(server, "/healthz") == (200, "ok\n")
    progress = json.loads(get(server, "/progress")[1])
    assert progress["training"]["rewardMean"] is None
    assert "evaluation" not in progress


def test_a_sweep_is_told_in_metrics_and_progress(server: MetricsServer, run_state: RunState) -> None:
    run_state.swept(None, TrialsStatus(total=4, running=2, failed=1))
    found = series(server)
    states = {state: found[f"reef_sweep_trials|{state}"] for state in ("running", "finished", "failed", "waiting")}
    assert states == {"running": 2, "finished": 0, "failed": 1, "waiting": 1}
    assert "reef_sweep_best_metric" not in found
    run_state.swept(TrialStatus(name="trial_0001", metric=20.5), TrialsStatus(total=4, running=2, failed=1))
    assert series(server)["reef_sweep_best_metric"] == 20.5
    progress = json.loads(get(server, "/progress")[1])
    assert (progress["bestTrial"]["name"], progress["trials"]["total"]) == ("trial_0001", 4)


def test_an_update_that_was_refused_shows_what_was_not_finite(server: MetricsServer, run_state: RunState) -> None:
    run_state.refused({"total_loss": float("nan"), "grad_gnorm": float("inf")})  # in the first iteration
    found = series(server)
    assert math.isnan(found["reef_training_loss|default_policy|total"])
    assert found["reef_training_gradient_norm|default_policy"] == math.inf
    run_state.report(RESULT)
    found = series(server)
    assert math.isnan(found["reef_training_loss|default_policy|total"])
    assert found["reef_training_kl|default_policy"] == 0.01, "the rest is that of the newest result"


def test_what_applications_have_is_shown_until_the_run_has_ended(run_state: RunState, server: MetricsServer) -> None:
    run = Run(folder=Path("/r"), algorithm="PPO", environment="external", config={}, stop=StopConditions({}))
    run_state.start(run)
    assert not any("external" in name.partition("|")[0] for name in series(server))
    found = Applications(open_episodes=3, queued_steps=120, refused={401: 2, 429: 7})
    run_state.start(replace(run, applications=lambda: found))
    expected = {
        "reef_training_external_open_episodes": 3,
        "reef_training_external_queued_steps": 120,
        "reef_training_external_refused_total|401": 2,
        "reef_training_external_refused_total|429": 7,
    }
    assert {name: value for name, value in series(server).items() if name.startswith("reef_training_ext")} == expected
    run_state.finish(Summary(folder=run.folder, checkpoint=None, result=None, exit_code=0, reason="done"))
    assert "reef_training_external_open_episodes" not in series(server)


def test_metrics_come_from_the_newest_result(server: MetricsServer, run_state: RunState) -> None:
    run_state.report({**RESULT, "training_iteration": 2})
    run_state.report({key: value for key, value in RESULT.items() if key != "evaluation"})
    found = series(server)
    expected = {
        "reef_training_iterations_total": 3,
        "reef_training_env_steps_sampled_total": 12000,
        "reef_training_episode_reward_mean": 20.5,
        "reef_training_episode_length_mean": 20.5,
        "reef_training_sample_seconds": 0.25,
        "reef_training_workers_healthy": 1,
        "reef_training_workers_waiting": 2,
        "reef_training_workers_lost": 1,
        "reef_training_workers_recreated_total": 4,
        "reef_training_loss|default_policy|total": 0.5,
        "reef_training_kl|default_policy": 0.01,
        "reef_training_learning_rate|default_policy": 3e-4,
        "reef_training_learner|default_policy|cur_kl_coeff": 0.2,
        "reef_evaluation_episode_reward_mean": 30.0,
        "reef_evaluation_iteration": 2,
    }
    assert {name: found.get(name) for name in expected} == expected
    assert not any("entropy" in name for name in found)


def test_an_asynchronous_run_shows_how_old_its_weights_are_and_what_was_dropped(
    server: MetricsServer, run_state: RunState
) -> None:
    run_state.report(RESULT)
    assert not any("staleness" in name or "dropped" in name or "shards" in name for name in series(server))
    statistics = {"staleness": 1.5, "staleness_max": 4.0}
    learner = {"default_policy": {"learner_stats": statistics}}
    counters = {"num_batches_dropped": 3, "num_gradients_dropped": 5, "num_replay_shards_recreated": 2}
    run_state.report({**RESULT, "counters": counters, "info": {"learner": learner}})
    found = series(server)
    assert found["reef_training_replay_shards_recreated_total"] == 2
    assert found["reef_training_batches_dropped_total"] == 3
    assert found["reef_training_gradients_dropped_total"] == 5
    assert found["reef_training_staleness_versions|default_policy"] == 1.5
    assert found["reef_training_staleness_max_versions|default_policy"] == 4.0


def test_without_an_episode_there_is_no_reward_series(server: MetricsServer, run_state: RunState) -> None:
    run_state.report({**RESULT, "episode_reward_mean": None})
    assert "reef_training_episode_reward_mean" not in series(server)


def test_progress_has_the_fields_of_the_job_status(server: MetricsServer, run_state: RunState, tmp_path: Path) -> None:
    (tmp_path / "arrays").write_bytes(b"12345")
    run_state.report(RESULT)
    run_state.saved(tmp_path, 3, "2026-01-01T00:00:00+00:00", 0.5)
    run_state.finish(Summary(folder=tmp_path, checkpoint=tmp_path, result=RESULT, exit_code=143, reason="SIGTERM"))
    assert json.loads(get(server, "/progress")[1]) == {
        "training": {
            "iteration": 3,
            "timesteps": 12000,
            "episodes": 40,
            "rewardMean": 20.5,
            "rewardMin": 9.0,
            "rewardMax": 90.0,
            "stepsPerSecond": 4000.0,
        },
        "evaluation": {"iteration": 3, "episodes": 10, "rewardMean": 30.0, "rewardMin": 1.0, "rewardMax": None},
        "checkpoint": {"path": str(tmp_path), "iteration": 3, "time": "2026-01-01T00:00:00+00:00"},
        "stopped": "SIGTERM",
    }
    found = series(server)
    assert found["reef_training_checkpoint_bytes"] == 5
    assert found["reef_training_checkpoint_timestamp_seconds"] == 1767225600


def test_unknown_path_and_taken_port(server: MetricsServer) -> None:
    assert get(server, "/nothing")[0] == 404
    with pytest.raises(ResourceError, match=f"127.0.0.1:{server.port}: .*--metrics-port"):
        MetricsServer(RunState(), server.port)


def test_stopping_ends_the_thread_and_frees_the_port(run_state: RunState) -> None:
    before = set(threading.enumerate())
    server = MetricsServer(run_state, 0)
    assert set(threading.enumerate()) > before
    server.stop()
    assert set(threading.enumerate()) <= before
    MetricsServer(run_state, server.port).stop()


def test_a_resumed_run_shows_where_it_goes_on_before_its_first_result(tmp_path: Path) -> None:
    run_state = RunState()
    stop = StopConditions({})
    run_state.start(
        Run(
            folder=tmp_path,
            algorithm="PPO",
            environment="CartPole-v1",
            config={},
            stop=stop,
            restored_iteration=7,
            restored_timesteps=700,
        )
    )
    (tmp_path / "weights").write_text("four")
    run_state.saved(tmp_path, 7, "2026-01-01T00:00:00Z")
    progress = run_state.progress()
    assert (progress["training"]["iteration"], progress["training"]["timesteps"]) == (7, 700)
    assert progress["checkpoint"]["iteration"] == 7
    server = MetricsServer(run_state, 0)
    try:
        shown = series(server)
    finally:
        server.stop()
    assert shown["reef_training_checkpoint_bytes"] == 4
    assert "reef_training_checkpoint_seconds" not in shown, "nobody knows what another process took"


def test_progress_is_json_also_without_a_reward(run_state: RunState) -> None:
    run_state.report(RESULT | {"episode_reward_mean": float("nan"), "episode_reward_min": float("-inf")})
    training = json.loads(json.dumps(run_state.progress(), allow_nan=False))["training"]
    assert (training["rewardMean"], training["rewardMin"], training["rewardMax"]) == (None, None, 90.0)


def test_a_server_says_who_it_is(run_state: RunState, server: MetricsServer) -> None:
    run_state.identity = "abc"
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    connection.request("GET", "/healthz")
    assert connection.getresponse().getheader("Reef-Identity") == "abc"
    connection.close()
