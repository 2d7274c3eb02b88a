"""What settings do in rollout workers on Ray: variables, threads, filters; and what environments share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import ray

from reef import Algorithm, PPOConfig

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster"), pytest.mark.timeout(120)]
HERE = "tests.trainer.distributed.test_worker_settings"


@ray.remote(num_cpus=0)
class Counter:
    """Counts for all processes."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, number: int) -> int:
        self.count += number
        return self.count


class Counted(gym.Env[Any, Any]):
    """Adds each reset to the named actor."""

    observation_space, action_space = gym.spaces.Box(0.0, 1.0, (2,)), gym.spaces.Discrete(2)

    def __init__(self, env_config: Any) -> None:
        self.random = np.random.default_rng(env_config.worker_index)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        ray.get(ray.get_actor("global_counter").add.remote(1))
        self.steps = 0
        return self.random.random(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self.random.random(2, np.float32), 1.0, self.steps == 8, False, {}


@pytest.fixture(scope="module")
def algorithm(ray_cluster) -> Iterator[Algorithm]:
    """PPO with two workers that read two threads and a variable, and keep their filters to themselves."""
    config = PPOConfig().environment(f"{HERE}:Counted", disable_env_checking=True).debugging(seed=1)
    config.rollouts(num_rollout_workers=2, observation_filter="MeanStdFilter", synchronize_filters=False)
    config.resources(num_cpus_per_worker=0.5).framework(torch_threads_per_worker=2)
    config.python_environment(extra_python_environs_for_worker={"REEF_PROBE": "in a worker"})
    config.training(train_batch_size=64, sgd_minibatch_size=64, num_sgd_iter=1, model={"fcnet_hiddens": [4]})
    counter = Counter.options(name="global_counter").remote()
    ray.get(counter.add.remote(0))
    with config.build() as made:
        yield made
    ray.kill(counter)


def test_a_named_actor_counts_for_environments_and_driver(algorithm: Algorithm) -> None:
    counter = ray.get_actor("global_counter")
    before = ray.get(counter.add.remote(0))
    algorithm.train()
    assert ray.get(counter.add.remote(0)) >= before + 64 // 8


def test_workers_have_their_variables_and_threads(algorithm: Algorithm) -> None:
    found = algorithm.workers.foreach_worker(lambda worker: os.environ.get("REEF_PROBE"))
    assert found == [None, "in a worker", "in a worker"]
    assert algorithm.workers.foreach_worker(lambda worker: os.environ["OMP_NUM_THREADS"])[1:] == ["2", "2"]


def test_filters_stay_apart_where_they_are_not_synchronised(algorithm: Algorithm) -> None:
    """Evaluation and checkpoints have that of this process, which merges what both have seen."""
    algorithm.train()
    central, *own = algorithm.workers.foreach_worker(lambda worker: worker.filters["default_policy"].stat.state())
    assert central["count"] == own[0]["count"] + own[1]["count"] > 0
    assert not np.allclose(own[0]["mean"], own[1]["mean"])


def test_functions_reach_the_local_worker_first_and_every_environment(algorithm: Algorithm) -> None:
    assert algorithm.workers.foreach_worker(lambda worker: worker.worker_index) == [0, 1, 2]
    assert algorithm.workers.foreach_worker_with_index(lambda worker, index: index) == [0, 1, 2]
    seen = algorithm.workers.foreach_worker(lambda worker: worker.foreach_env(lambda env: env.steps >= 0))
    assert seen == [[], [True], [True]]
