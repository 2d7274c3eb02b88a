"""What RLlib's pages show of workers in processes of their own, see tests/pages, and reef.agents.templates there."""

from __future__ import annotations

import os
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import ray
from gymnasium.envs.classic_control import CartPoleEnv
from tests.pages.test_rllib_in_60_seconds import MyTorchPolicy, MyTrainer

from reef.algorithms.dqn import DQN
from reef.algorithms.ppo import PPO
from reef.callbacks import SampleBatch

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster"), pytest.mark.timeout(120)]
SMALL = {"train_batch_size": 64, "model": {"fcnet_hiddens": [4]}, "num_rollout_workers": 2}


def weights_of(worker: Any) -> dict[str, np.ndarray]:
    return worker.get_policy().get_weights()


def test_remote_workers_sample_and_a_policy_learns() -> None:
    env = gym.make("CartPole-v1")
    policy = MyTorchPolicy(env.observation_space, env.action_space, {"model": SMALL["model"]})
    with MyTrainer(env="CartPole-v1", config=SMALL) as trainer:
        for _ in range(2):
            batch = SampleBatch.concat_samples(trainer.workers.sample())
            assert batch.count == 64
            policy.learn_on_batch(batch)
            weights = policy.get_weights()
            trainer.workers.foreach_worker(lambda worker, weights=weights: worker.get_policy().set_weights(weights))
        held = trainer.workers.foreach_worker(weights_of)
    assert len(held) == 3
    assert all((each[name] == weights[name]).all() for each in held for name in weights)


def test_several_learners_descend_a_loss_function() -> None:
    with MyTrainer(env="CartPole-v1", config=SMALL | {"num_rollout_workers": 0, "num_learner_workers": 2}) as trainer:
        before = trainer.get_policy().get_weights()
        trainer.train()
        after = trainer.get_policy().get_weights()
    assert (before["pi.bias"] != after["pi.bias"]).all()


def test_remote_learners_learn_from_a_batch_and_all_workers_get_the_weights() -> None:
    settings = SMALL | {"num_learner_workers": 1, "sgd_minibatch_size": 32, "num_sgd_iter": 1}
    with PPO(env="CartPole-v1", config=settings) as trainer:
        policy = trainer.get_policy()
        before = policy.get_weights()
        policy.learn_on_batch(trainer.workers.sample())
        held = trainer.workers.foreach_worker(lambda worker: worker.get_policy().get_weights()["pi.weight"])
        assert (held[0] != before["pi.weight"]).any()
        assert all((each == held[0]).all() for each in held)


def test_policies_answer_in_the_processes_of_workers() -> None:
    def asked(index: int, worker: Any) -> tuple[int, int, list[int]]:
        policy = worker.get_policy()
        model_out = policy.model({"obs": np.zeros((1, 4))})
        values = policy.model.get_q_value_distributions(model_out)[0]
        best, _, _ = policy.compute_actions(np.zeros((1, 4)), explore=False)
        return index, os.getpid(), [int(values.argmax()), int(best[0])]

    with DQN(env="CartPole-v1", config=SMALL) as trainer:
        found = trainer.workers.foreach_worker_with_index(asked)
    assert [index for index, _, _ in found] == [0, 1, 2]
    assert len({pid for _, pid, _ in found}) == 3
    assert len({tuple(answers) for _, _, answers in found}) == 1


class Counting(CartPoleEnv):
    """Tells a global counter of each step, from the process that it is stepped in."""

    def __init__(self, env_config: Any) -> None:
        super().__init__()

    def step(self, action: Any) -> Any:
        ray.get_actor("global_counter").inc.remote(1)
        return super().step(action)


def test_environments_count_in_a_named_actor() -> None:
    @ray.remote(num_cpus=0)
    class Counter:
        def __init__(self) -> None:
            self.count = 0

        def inc(self, n: int) -> None:
            self.count += n

        def get(self) -> int:
            return self.count

    counter = Counter.options(name="global_counter").remote()
    assert ray.get(counter.get.remote()) == 0
    settings = SMALL | {"sgd_minibatch_size": 32, "num_sgd_iter": 1, "disable_env_checking": True}
    with PPO(env=Counting, config=settings) as trainer:
        trainer.train()
        assert ray.get(counter.get.remote()) >= 64
    ray.kill(counter)
