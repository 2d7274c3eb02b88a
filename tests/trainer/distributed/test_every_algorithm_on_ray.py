"""What holds for every algorithm with workers: one whose process is killed is replaced, done without, or the end."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

import pytest

from reef.algorithms.offline import OfflineAlgorithm
from reef.algorithms.q_critics import QCriticsConfig
from reef.algorithms.registry import ALGORITHMS, algorithm_class
from reef.config import AlgorithmConfig
from reef.errors import EXIT_FAILED, WorkerError
from reef.run.algorithm import Algorithm
from reef.run.events import SampleTaken

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster"), pytest.mark.timeout(300)]

SMALL: dict[str, Any] = {  # those of them that an algorithm has
    "num_rollout_workers": 2,
    "num_envs_per_worker": 1,
    "num_cpus_per_worker": 0.5,
    "num_gpus": 0.0,
    "num_gpus_per_worker": 0.0,
    "rollout_fragment_length": 10,
    "train_batch_size": 20,
    "sgd_minibatch_size": 20,
    "num_sgd_iter": 1,
    "episodes_per_batch": 2,
    "noise_size": 1000,
    "num_replay_buffer_shards": 1,
    "num_steps_sampled_before_learning_starts": 20,
    "max_weight_sync_delay": 20,
    "min_sample_timesteps_per_iteration": 0,
    "observation_filter": "MeanStdFilter",
    "model": {"fcnet_hiddens": [4]},
    "hiddens": [4],
    "delay_between_worker_restarts_s": 0.0,
    "seed": 3,
}
FLAGS = ("recreate_failed_workers", "ignore_worker_failures", "")


def cases() -> list[tuple[str, str]]:
    """Each algorithm with a flag, and each way to train with every flag."""
    by_flow: dict[Any, list[str]] = defaultdict(list)
    for name in ALGORITHMS:
        kind = algorithm_class(name)
        if not issubclass(kind, OfflineAlgorithm):
            by_flow[kind.training_step].append(name)
    return [
        (names[case % len(names)], FLAGS[case % len(FLAGS)])
        for names in by_flow.values()
        for case in range(max(len(names), len(FLAGS)))
    ]


def settings(name: str, flag: str) -> AlgorithmConfig:
    kind = algorithm_class(name).config_class
    given = {key: value for key, value in SMALL.items() if key in kind.by_key}
    real = issubclass(kind, QCriticsConfig)
    return kind.from_dict(given | ({flag: True} if flag else {})).environment(
        "eight_steps:DyingInWorker2", env_config={"real": real}
    )


def train_until_lost(algorithm: Algorithm) -> None:
    deadline = time.monotonic() + 60.0
    result = algorithm.train()
    while not (result["num_lost_workers"] or result["num_worker_restarts"]):
        assert time.monotonic() < deadline
        result = algorithm.train()


def train_with_all(algorithm: Algorithm, newer_than: int, seen: list[int]) -> None:
    """Train until worker 2 is back, is `seen` to sample, and has weights that are newer than that version."""
    deadline = time.monotonic() + 90.0
    while algorithm.workers.num_healthy < 2:
        assert time.monotonic() < deadline
        algorithm.train()
        time.sleep(0.1)  # the new process needs the cores
    while 2 not in seen or algorithm.workers.foreach_worker(lambda worker: worker.policy_version)[-1] <= newer_than:
        assert time.monotonic() < deadline
        algorithm.train()


@pytest.mark.parametrize(("name", "flag"), cases())
def test_a_worker_that_is_killed_in_a_call_is_covered_as_the_flags_say(name: str, flag: str) -> None:
    with settings(name, flag).build() as algorithm:
        seen: list[int] = []
        algorithm.events.subscribe(SampleTaken, lambda taken: seen.append(taken.sample.worker_index))
        if not flag:
            message = r"(?s)rollout worker 2 failed in \w+\(\): its process \d+ died.*recreate_failed_workers=True"
            with pytest.raises(WorkerError, match=message) as caught:
                train_until_lost(algorithm)
            assert caught.value.exit_code == EXIT_FAILED
            return
        train_until_lost(algorithm)
        assert {*seen} == {1, 2}, "both have worked"
        seen.clear()
        version, weights = algorithm.policy_version, algorithm.learners.weights()["default_policy"].copy()
        is_back = flag == "recreate_failed_workers"
        if is_back:
            train_with_all(algorithm, version, seen)
        trained = algorithm.counters["num_env_steps_trained"]
        while algorithm.counters["num_env_steps_trained"] < trained + 60:
            result = algorithm.train()
        assert (algorithm.learners.weights()["default_policy"] != weights).any()
        assert (result["num_worker_restarts"], result["num_healthy_workers"]) == ((1, 2) if is_back else (0, 1))
        assert {*seen} == ({1, 2} if is_back else {1})
