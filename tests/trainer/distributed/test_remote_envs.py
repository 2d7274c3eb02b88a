"""Workers on Ray whose environments, of reef.envs.remote, have processes of their own."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from tests.trainer.envs.remote.remote_envs import Walk

from reef.algorithms.ppo import PPOConfig
from reef.errors import WorkerError
from reef.rollout.worker import RolloutWorker

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster"), pytest.mark.timeout(120)]


def config(**settings: Any) -> PPOConfig:
    made = PPOConfig().environment(Walk).debugging(seed=3)
    return made.update_from_dict(
        {
            "num_rollout_workers": 1,
            "num_envs_per_worker": 2,
            "remote_worker_envs": True,
            "rollout_fragment_length": 10,
            "train_batch_size": 20,
            "sgd_minibatch_size": 20,
            "num_sgd_iter": 1,
            "model": {"fcnet_hiddens": [4]},
            "num_cpus_per_worker": 0.5,
            "delay_between_worker_restarts_s": 0.0,
            **settings,
        }
    )


def pids(algorithm: Any) -> list[int]:
    """Of the worker, and of its environments."""

    def of(worker: RolloutWorker) -> list[int]:
        return [os.getpid(), *worker.foreach_env(lambda env: env.pid())]

    return algorithm.workers.foreach_worker(of)[-1]


def ended(pid: int) -> bool:
    try:
        return "(zombie)" in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


def all_end(pids: list[int]) -> bool:
    deadline = time.monotonic() + 20.0
    while not all(map(ended, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return all(map(ended, pids))


def test_killed_environments_are_replaced_and_killed_workers_take_theirs_along() -> None:
    with config(restart_failed_sub_environments=True, recreate_failed_workers=True).build() as algorithm:
        algorithm.train()
        worker, *envs = pids(algorithm)
        assert len({worker, *envs, os.getpid()}) == 4
        os.kill(envs[1], signal.SIGKILL)
        assert algorithm.train()["num_env_steps_sampled"] == 39, "the step that broke counts for nothing"
        same_worker, same_env, other_env = pids(algorithm)
        assert (same_worker, same_env) == (worker, envs[0])
        assert other_env not in envs
        os.kill(worker, signal.SIGKILL)
        algorithm.train()
        assert all_end([same_env, other_env])
        last = pids(algorithm)
        assert last[0] != worker
    assert all_end(last)


def test_a_killed_environment_is_a_failure_of_its_worker() -> None:
    with config().build() as algorithm:
        _, env, _ = pids(algorithm)
        os.kill(env, signal.SIGKILL)
        with pytest.raises(WorkerError, match=r"process of environment 0 of worker 1 \(pid \d+\) has ended"):
            algorithm.train()
