"""Policies that come and go with workers and learners in processes of their own."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reef.algorithms.impala import IMPALAConfig
from reef.algorithms.ppo import PPOConfig
from reef.envs.multi_agent import IndependentAgents
from reef.run.algorithm import Algorithm

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster"), pytest.mark.timeout(180)]


def main_and_the_rest(agent_id: int, episode: Any) -> str:
    others = [policy_id for policy_id in episode.policies if policy_id != "main"]
    return others[episode.episode_id % len(others)] if agent_id == 1 and others else "main"


def config(kind: Any = PPOConfig) -> Any:
    made = kind().environment(IndependentAgents, env_config={"env": "CartPole-v1", "num_agents": 2})
    made.multi_agent(policies=["main"], policy_mapping_fn=main_and_the_rest, policies_to_train=["main"])
    made.training(model={"fcnet_hiddens": [4]}, train_batch_size=64).debugging(seed=1)
    return made.rollouts(num_rollout_workers=2, observation_filter="MeanStdFilter", rollout_fragment_length=32)


def held(algorithm: Algorithm) -> list[dict[str, np.ndarray]]:
    found: list[dict[str, np.ndarray]] = algorithm.workers.foreach_worker(lambda worker: worker.acting_weights())
    return found


def test_they_change_in_workers_and_learners(tmp_path: Path) -> None:
    made = config().training(sgd_minibatch_size=32, num_sgd_iter=2)
    made.evaluation(evaluation_interval=2, evaluation_duration=2)
    with made.resources(num_learner_workers=2, num_cpus_per_learner_worker=0.5).build() as algorithm:
        algorithm.train()
        algorithm.add_policy("past", policy=algorithm.get_policy("main"))
        algorithm.add_policy("learns", config={"lr": 0.25}, policies_to_train=["main", "learns"])
        assert algorithm.workers._published[0].keys() == {"main", "learns"}, "the past was sent once"
        for own in held(algorithm):
            assert own.keys() == {"main", "past", "learns"}
            np.testing.assert_array_equal(own["past"], held(algorithm)[0]["past"])
        result = [algorithm.train() for _ in range(2)][-1]
        assert result["info"]["learner"]["learns"]["learner_stats"]["cur_lr"] == 0.25
        assert result["info"]["learner"].keys() == {"main", "learns"}
        assert "main" in algorithm.evaluate()["evaluation"]["policy_reward_mean"]
        for own in held(algorithm):
            for name, weights in own.items():
                np.testing.assert_array_equal(weights, held(algorithm)[0][name])
        checkpoint = algorithm.save(tmp_path / "checkpoint")
        algorithm.remove_policy("past")
        assert algorithm.train()["info"]["learner"].keys() == {"main", "learns"}
        assert all(own.keys() == {"main", "learns"} for own in held(algorithm))
        algorithm.restore(checkpoint)
        algorithm.get_policy("past").set_weights(algorithm.get_policy("learns").get_weights())
        algorithm.publish_weights()
        for own in held(algorithm):
            np.testing.assert_array_equal(own["past"], own["learns"])
        assert all(own.keys() == {"main", "past", "learns"} for own in held(algorithm))
        algorithm.train()


def test_a_worker_that_is_started_again_has_them_too() -> None:
    made = config().training(sgd_minibatch_size=32, num_sgd_iter=1).fault_tolerance(recreate_failed_workers=True)
    with made.build() as algorithm:
        algorithm.train()
        algorithm.add_policy("past", policy=algorithm.get_policy("main"))
        os.kill(algorithm.workers._group.process(1).pid, signal.SIGKILL)
        latest = time.monotonic() + 90
        algorithm.train()
        while algorithm.workers.num_healthy < 2 and time.monotonic() < latest:
            algorithm.train()
        assert algorithm.workers.num_restarts == 1
        assert all(own.keys() == {"main", "past"} for own in held(algorithm))


def test_workers_that_do_not_wait_get_them_between_fragments() -> None:
    with config(IMPALAConfig).reporting(min_time_s_per_iteration=0).build() as algorithm:
        algorithm.train()
        algorithm.add_policy("new", policies_to_train=["main", "new"])
        learned = [set(algorithm.train()["info"]["learner"]) for _ in range(8)]
        assert {"main", "new"} in learned
        algorithm.remove_policy("new")
        for _ in range(4):
            assert set(algorithm.train()["info"]["learner"]) == {"main"}


def test_workers_have_no_more_of_them_in_memory_than_they_may() -> None:
    made = config().training(sgd_minibatch_size=32, num_sgd_iter=1).multi_agent(policy_map_capacity=2)
    with made.build() as algorithm:
        for name in ("past", "older", "oldest"):
            algorithm.train()
            algorithm.add_policy(name, policy=algorithm.get_policy("main"))
        algorithm.train()
        away = algorithm.workers.foreach_worker(lambda worker: len(worker.policy_map.away))
        assert away == [2, 2, 2]
        for own in held(algorithm):
            for name, weights in own.items():
                np.testing.assert_array_equal(weights, held(algorithm)[0][name])
