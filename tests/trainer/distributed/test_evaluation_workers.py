"""Evaluation in processes of its own."""

import logging
import os
import signal
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import ray

from reef.algorithms.impala import IMPALAConfig
from reef.algorithms.ppo import PPOConfig
from reef.distributed.node_settings import ELASTIC, OF_POOL, WORKERS_LABEL
from reef.errors import WorkerError

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster"), pytest.mark.timeout(120)]


def config(**evaluation: Any) -> PPOConfig:
    return (
        PPOConfig()
        .environment("CartPole-v1")
        .resources(num_cpus_per_worker=0.5)
        .training(train_batch_size=64, sgd_minibatch_size=64, num_sgd_iter=1, model={"fcnet_hiddens": [8]})
        .evaluation(**{"evaluation_num_workers": 1, "evaluation_duration": 3} | evaluation)
        .debugging(seed=0)
    )


class Told(gym.Env[Any, Any]):
    """Keeps what it was made with."""

    observation_space, action_space = gym.spaces.Box(0.0, 1.0, (2,)), gym.spaces.Discrete(2)

    def __init__(self, context: Any) -> None:
        self.context = context

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.reset()[0], 1.0, True, False, {}


def context_of(env: Told) -> tuple[int, ...]:
    given = env.context
    return given.worker_index, given.vector_index, given.num_workers, given["length"], given["width"]


@pytest.mark.parametrize("recreate", [False, True])
def test_evaluation_that_takes_too_long_is_a_warning_with_remedies(ray_cluster, caplog, recreate) -> None:
    settings = config(evaluation_sample_timeout_s=3.0).fault_tolerance(recreate_failed_workers=recreate)
    with settings.build() as algorithm:
        first = algorithm.evaluate()["evaluation"]
        assert first["episodes_this_iter"] == 3
        hanging = algorithm.evaluation.workers.foreach_worker(lambda worker: os.getpid())[1]
        os.kill(hanging, signal.SIGSTOP)  # a process that hangs for good
        with caplog.at_level(logging.WARNING):
            again = algorithm.evaluate()["evaluation"]
        assert again == first, "the last metrics are reported"
        for remedy in ("(1) raise evaluation_sample_timeout_s", "(2) lower", "(3) raise evaluation_num_workers"):
            assert remedy in caplog.text
        assert algorithm.evaluate()["evaluation"]["episodes_this_iter"] == 3, "new workers are started"


def test_an_asynchronous_algorithm_evaluates_again_and_again() -> None:
    settings = IMPALAConfig().environment("CartPole-v1").resources(num_cpus_per_worker=0.5).debugging(seed=0)
    settings.rollouts(num_rollout_workers=1, rollout_fragment_length=16).training(train_batch_size=32)
    settings.evaluation(evaluation_interval=1, evaluation_num_workers=1, evaluation_duration=2)
    with settings.build() as algorithm:
        versions = set()
        for _ in range(3):
            assert algorithm.train()["evaluation"]["episodes_this_iter"] == 2
            versions.update(algorithm.evaluation.workers.foreach_worker(lambda worker: worker.policy_version)[1:])
        assert len(versions) == 3, "the newest weights play"
        assert algorithm.evaluation.workers.num_restarts == 0


def test_workers_that_have_no_room_in_the_pods_are_not_waited_for(ray_cluster) -> None:
    nodes = [ray_cluster.add_node(num_cpus=0, resources={ELASTIC: 1})]
    nodes += [ray_cluster.add_node(num_cpus=1, labels={WORKERS_LABEL: OF_POOL})]
    settings = config(evaluation_num_workers=2).fault_tolerance(recreate_failed_workers=True)
    try:
        with settings.resources(num_cpus_per_worker=1).build() as algorithm:
            found = algorithm.evaluate()["evaluation"]
        assert (found["episodes_this_iter"], found["num_healthy_workers"]) == (3, 1)
    finally:
        for node in reversed(nodes):
            ray_cluster.remove_node(node)


def test_evaluation_workers_give_their_room_to_a_rollout_worker_that_has_none(
    ray_cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("reef.distributed.ray_workers.ASK_FOR_ROOM_S", 2.0)
    nodes = [ray_cluster.add_node(num_cpus=0, resources={ELASTIC: 1})]
    nodes += [ray_cluster.add_node(num_cpus=1, labels={WORKERS_LABEL: OF_POOL}) for _ in range(2)]
    settings = config().rollouts(num_rollout_workers=1).fault_tolerance(recreate_failed_workers=True)
    try:
        with settings.resources(num_cpus_per_worker=1).build() as algorithm:
            algorithm.train()
            algorithm.evaluate()
            _, place = algorithm.workers.foreach_worker(lambda worker: ray.get_runtime_context().get_node_id())
            lost = next(node for node in nodes if node.node_id == place)
            nodes.remove(lost)
            ray_cluster.remove_node(lost, allow_graceful=False)
            started = time.monotonic()
            while "evaluation workers are ended" not in caplog.text:  # a process outlives its node by a moment
                assert time.monotonic() - started < 60.0
                algorithm.train()
            assert algorithm.workers.num_healthy == 1
    finally:
        for node in reversed(nodes):
            ray_cluster.remove_node(node)


@pytest.mark.parametrize("policy", ["recreate_failed_workers", "ignore_worker_failures"])
def test_a_killed_evaluation_worker_costs_no_episode(policy: str) -> None:
    settings = config(evaluation_num_workers=2).fault_tolerance(**{policy: True})
    with settings.build() as algorithm:
        assert algorithm.evaluate()["evaluation"]["num_healthy_workers"] == 2
        workers = algorithm.evaluation.workers
        os.kill(workers.foreach_worker(lambda worker: os.getpid())[2], signal.SIGKILL)
        after = algorithm.evaluate()["evaluation"]
        assert (after["episodes_this_iter"], after["num_healthy_workers"]) == (3, 1)
        replaced = policy == "recreate_failed_workers"
        deadline = time.monotonic() + 60.0
        while replaced and workers.num_healthy < 2:
            assert time.monotonic() < deadline
            assert algorithm.evaluate()["evaluation"]["episodes_this_iter"] == 3
        assert workers.num_restarts == replaced
        weights = workers.foreach_worker(lambda worker: worker.acting_weights()["default_policy"].tolist())
        assert weights == weights[:1] * (3 if replaced else 2), "a replacement has them as well"
        assert algorithm.evaluate()["evaluation"]["episodes_this_iter"] == 3


def rounds(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records if "of parallel evaluation" in record.getMessage()]


def test_the_rounds_of_an_evaluation_are_in_the_log(caplog) -> None:
    settings = config(evaluation_num_workers=2, evaluation_duration=5)
    settings.fault_tolerance(ignore_worker_failures=True)
    with caplog.at_level(logging.INFO), settings.build() as algorithm:
        assert algorithm.evaluate()["evaluation"]["episodes_this_iter"] == 5
        assert "Evaluating current policy for 5 episodes." in caplog.text
        assert rounds(caplog) == ["Running round 0 of parallel evaluation (5/5 episodes)"]
        caplog.clear()
        os.kill(algorithm.evaluation.workers.foreach_worker(lambda worker: os.getpid())[1], signal.SIGKILL)
        assert algorithm.evaluate()["evaluation"]["episodes_this_iter"] == 5
        first, last = rounds(caplog)
        assert first == "Running round 0 of parallel evaluation (2/5 episodes)", "worker 1 had three to play"
        assert last == "Running round 1 of parallel evaluation (5/5 episodes)"


def test_a_killed_evaluation_worker_costs_no_steps() -> None:
    settings = config(evaluation_num_workers=2, evaluation_duration=200, evaluation_duration_unit="timesteps")
    with settings.fault_tolerance(ignore_worker_failures=True).build() as algorithm:
        assert algorithm.evaluate()["evaluation"]["timesteps_this_iter"] == 200
        os.kill(algorithm.evaluation.workers.foreach_worker(lambda worker: os.getpid())[1], signal.SIGKILL)
        assert algorithm.evaluate()["evaluation"]["timesteps_this_iter"] == 200


def test_environments_are_told_which_worker_of_the_evaluation_has_them() -> None:
    own = {"env_config": {"length": 7}, "num_envs_per_worker": 2}
    settings = config(evaluation_num_workers=2, evaluation_config=own).environment(Told, env_config={"width": 3})
    with settings.build() as algorithm:
        algorithm.evaluate()
        contexts = algorithm.evaluation.workers.foreach_worker(lambda worker: worker.foreach_env(context_of))
    assert contexts[1:] == [[(index, 0, 2, 7, 3), (index, 1, 2, 7, 3)] for index in (1, 2)]


def test_a_killed_evaluation_worker_ends_the_run_by_default() -> None:
    with config().build() as algorithm:
        algorithm.evaluate()
        os.kill(algorithm.evaluation.workers.foreach_worker(lambda worker: os.getpid())[1], signal.SIGKILL)
        with pytest.raises(
            WorkerError, match=r"evaluation worker 1 failed in sample_episodes\(\): its process \d+ died"
        ):
            algorithm.evaluate()


def test_estimates_are_of_the_weights_that_are_evaluated(tmp_path: Path) -> None:
    with config(evaluation_num_workers=0).offline_data(output=str(tmp_path)).build() as algorithm:
        algorithm.train()
    asked: dict[str, Any] = {"evaluation_config": {"input_": str(tmp_path)}, "evaluation_duration": 1}
    asked["off_policy_estimation_methods"] = {"is": {"type": "is"}}
    found = []
    for workers in (0, 1):
        with config(evaluation_num_workers=workers, **asked).build() as algorithm:
            untrained = algorithm.evaluate()["evaluation"]["off_policy_estimator"]["is"]
            algorithm.train()
            found.append((untrained, algorithm.evaluate()["evaluation"]["off_policy_estimator"]["is"]))
    assert found[0] == found[1]
    assert found[0][0] != found[0][1]
