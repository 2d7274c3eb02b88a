"""Tasks of environments in other processes, by reef.rollout.curriculum: they outlive their workers."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from reef import PPOConfig, TaskSettableEnv
from reef.errors import WorkerError
from reef.run.algorithm import Algorithm

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster"), pytest.mark.timeout(180)]


class Level(TaskSettableEnv):
    """Observes its task."""

    observation_space, action_space = gym.spaces.Box(0.0, 1000.0, (1,)), gym.spaces.Discrete(2)

    def __init__(self, env_config: Any) -> None:
        self.task = 0

    def get_task(self) -> int:
        return self.task

    def set_task(self, task: int) -> None:
        self.task = task

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return np.array([self.task], np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.reset()[0], 1.0, True, False, {}


def level(train_results: dict[str, Any], task_settable_env: Level, env_ctx: Any) -> int:
    """After iteration n, in environment e of worker w: 100 n + 10 w + e."""
    return 100 * train_results["training_iteration"] + 10 * env_ctx.worker_index + env_ctx.vector_index


def config(workers: int = 2, **environment: Any) -> PPOConfig:
    return (
        PPOConfig()
        .environment(Level, **{"env_task_fn": level} | environment)
        .rollouts(num_rollout_workers=workers, num_envs_per_worker=2, rollout_fragment_length="auto")
        .resources(num_cpus_per_worker=0.5)
        .training(train_batch_size=64, sgd_minibatch_size=64, num_sgd_iter=1, model={"fcnet_hiddens": [8]})
        .fault_tolerance(recreate_failed_workers=True)
        .debugging(seed=0)
    )


def tasks(algorithm: Algorithm) -> list[list[int]]:
    return algorithm.workers.foreach_worker(lambda worker: worker.foreach_env(lambda env: env.get_task()))[1:]


def test_a_worker_that_is_started_again_has_the_tasks_of_the_one_before() -> None:
    with config().build() as algorithm:
        algorithm.train()
        assert tasks(algorithm) == [[110, 111], [120, 121]]
        pids = algorithm.workers.foreach_worker(lambda worker: os.getpid())
        os.kill(pids[2], signal.SIGKILL)
        before = algorithm.workers.num_restarts
        deadline = time.monotonic() + 120.0
        while algorithm.workers.num_restarts == before or algorithm.workers.num_healthy < 2:
            assert time.monotonic() < deadline
            samples = algorithm.workers.sample()
        assert tasks(algorithm) == [[110, 111], [120, 121]]
        samples = algorithm.workers.sample()
        assert [sample.rollouts["default_policy"].obs[0, :, 0].tolist() for sample in samples] == tasks(algorithm)


def test_a_resumed_run_has_the_tasks_on_any_number_of_workers(tmp_path: Path) -> None:
    with config().build() as algorithm:
        algorithm.train()
        path = algorithm.save(tmp_path / "here")
    with config(3).build() as algorithm:
        algorithm.restore(path)
        assert tasks(algorithm) == [[110, 111], [120, 121], [110, 111]]
        os.kill(algorithm.workers.foreach_worker(lambda worker: os.getpid())[1], signal.SIGKILL)
        algorithm.workers.sample()
        while algorithm.workers.num_healthy < 3:
            algorithm.workers.sample()
        assert tasks(algorithm)[0] == [110, 111]
    with config(0).build() as algorithm:
        algorithm.restore(path)
        (found,) = algorithm.workers.foreach_worker(lambda worker: worker.foreach_env(lambda env: env.get_task()))
        assert found == [110, 111]


def test_a_loop_of_ones_own_sets_tasks_that_stay() -> None:
    with config(1, env_task_fn=None).build() as algorithm:
        algorithm.workers.foreach_worker(lambda worker: worker.foreach_env(lambda env: env.set_task(8)))
        os.kill(algorithm.workers.foreach_worker(lambda worker: os.getpid())[1], signal.SIGKILL)
        algorithm.train()
        assert tasks(algorithm) == [[8, 8]]


def test_a_function_that_raises_ends_the_run_and_is_named() -> None:
    with (
        config(1, env_task_fn=lambda results, env, context: results["no such"]).build() as algorithm,
        pytest.raises(WorkerError, match=r"(?s)env_task_fn raised KeyError: 'no such'") as raised,
    ):
        algorithm.train()
    assert raised.value.exit_code == 2
