"""Ape-X with workers, shards and learners in processes of their own; it tests reef.distributed.replay.ray_shards."""

import os
import signal
import time
from typing import Any

import numpy as np
import pytest

from reef.algorithms.apex import Apex, ApexDQNConfig
from reef.distributed.ray_workers import RayWorkers
from reef.distributed.replay.ray_shards import RayShards
from reef.errors import WorkerError

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster"), pytest.mark.timeout(300)]


def settings(**given: Any) -> ApexDQNConfig:
    base = {
        "num_rollout_workers": 2,
        "num_gpus": 0.0,
        "num_cpus_per_worker": 0.5,
        "num_cpus_per_learner_worker": 0.5,
        "num_replay_buffer_shards": 2,
        "rollout_fragment_length": 10,
        "train_batch_size": 20,
        "num_steps_sampled_before_learning_starts": 40,
        "max_weight_sync_delay": 20,
        "min_sample_timesteps_per_iteration": 0,
        "model": {"fcnet_hiddens": [8]},
        "hiddens": [8],
        "delay_between_worker_restarts_s": 0.0,
        "seed": 3,
    }
    return ApexDQNConfig.from_dict(base | given).environment("eight_steps:Slow", env_config={"step_s": 0.005})


def stats_of(result: dict[str, Any]) -> dict[str, float]:
    return result["info"]["learner"]["default_policy"]["learner_stats"]


def parts(algorithm: Any) -> tuple[RayWorkers, RayShards]:
    assert isinstance(algorithm, Apex)
    assert isinstance(algorithm.workers, RayWorkers) and isinstance(algorithm.shards, RayShards)
    return algorithm.workers, algorithm.shards


def until_learned(algorithm: Apex) -> dict[str, Any]:
    while not (result := algorithm.train())["info"]["learner"]:
        pass
    return result


@pytest.mark.parametrize("most", [1, 3])
def test_no_more_batches_are_requested_from_a_shard_than_may_be(most: int) -> None:
    with settings(max_requests_in_flight_per_replay_worker=most).build() as algorithm:
        _, shards = parts(algorithm)
        until_learned(algorithm)
        while shards.request():
            pass
        assert shards.num_requested == most * 2, "of two shards"


def test_workers_shards_and_learner_work_side_by_side() -> None:
    with settings().build() as algorithm:
        workers, shards = parts(algorithm)
        before = algorithm.get_policy().get_weights()["value.output.bias"]
        until_learned(algorithm)
        for _ in range(10):
            result = algorithm.train()
        sampled, trained = result["num_env_steps_sampled"] - 40, result["num_env_steps_trained"]
        assert trained == 20 * 11
        # 20 + 20 + 40 steps of updates that are behind, and two fragments of each worker under way
        assert sampled - (2 * 20 + 40 + 40) <= trained <= sampled
        assert sum(shards.sizes) == result["num_env_steps_sampled"]
        assert max(shards.sizes) - min(shards.sizes) <= 10
        stats = stats_of(result)
        assert stats["staleness_max"] <= 12 and stats["replay_size"] == sum(shards.sizes)
        versions = workers.foreach_worker(lambda worker: worker.policy_version)
        assert min(versions[1:]) > 1, "workers got weights on the way"
        assert (algorithm.get_policy().get_weights()["value.output.bias"] != before).any()
        stored = [state and state["buffers"]["default_policy"] for state in shards.state()["shards"]]
        assert [one["added"] for one in stored] == shards.sizes
        assert len({*np.round(stored[0]["priorities"], 6).tolist()}) > 5, "no priority is that of another transition"


@pytest.mark.parametrize("count", [1, 2])
def test_a_shard_that_is_killed_comes_back_empty_and_the_run_goes_on(
    count: int, caplog: pytest.LogCaptureFixture
) -> None:
    config = settings(recreate_failed_workers=True, num_replay_buffer_shards=count)
    with config.build() as algorithm:
        _, shards = parts(algorithm)
        until_learned(algorithm)
        algorithm.train()
        os.kill(shards._group.pid(1), signal.SIGKILL)
        state = algorithm.state()
        assert state["replay"]["shards"][0] is None and state["replay"]["sizes"][0] > 0
        deadline = time.monotonic() + 90.0
        result = algorithm.train()
        while result["counters"]["num_replay_shards_recreated"] < 1:
            assert time.monotonic() < deadline
            result = algorithm.train()
        assert "replay shard 1 begins again, empty" in caplog.text
        trained = result["num_env_steps_trained"]
        while result["num_env_steps_trained"] < trained + 100:
            assert time.monotonic() < deadline
            result = algorithm.train()
        assert sum(shards.sizes) < result["num_env_steps_sampled"]
        stored = shards.state()["shards"][0]["buffers"]["default_policy"]
        assert stored["added"] == shards.sizes[0]
        assert len(stored["priorities"]) == shards.sizes[0] and (stored["priorities"] > 0).all()
        algorithm.set_state(state)
        assert shards.sizes[0] == 0 and shards.stored == sum(state["replay"]["sizes"][1:])
        until_learned(algorithm)


def test_a_shard_that_is_killed_ends_the_run_unless_the_settings_cover_it() -> None:
    with settings().build() as algorithm:
        _, shards = parts(algorithm)
        os.kill(shards._group.pid(2), signal.SIGKILL)
        with pytest.raises(WorkerError, match=r"(?s)replay shard 2 failed.*recreate_failed_workers=True replaces"):
            for _ in range(30):
                algorithm.train()


def test_learning_goes_on_without_a_shard_whose_share_it_would_wait_for() -> None:
    config = settings(ignore_worker_failures=True, replay_buffer_config={"capacity": 60})
    with config.build() as algorithm:
        _, shards = parts(algorithm)
        trained = until_learned(algorithm)["num_env_steps_trained"]
        os.kill(shards._group.pid(1), signal.SIGKILL)
        deadline = time.monotonic() + 60.0
        while len(shards.healthy) > 1 or algorithm.counters["num_env_steps_trained"] < trained + 200:
            assert time.monotonic() < deadline
            algorithm.train()
        assert shards.stored == shards.capacity == 30, "it started with 40"


def test_several_learners_share_the_batches_and_a_state_is_restored() -> None:
    with settings(num_learner_workers=2).build() as algorithm:
        _, shards = parts(algorithm)
        until_learned(algorithm)
        result = algorithm.train()
        assert result["num_env_steps_trained"] == 40
        state = algorithm.state()
        sizes = list(shards.sizes)
        algorithm.train()
        algorithm.set_state(state)
        assert shards.sizes == sizes and shards.num_requested == 0
        assert algorithm.train()["num_env_steps_trained"] == 60
