"""What a person finds on RLlib's pages "RLlib in 60 seconds" and "Key Concepts", with Reef's imports, by block."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch

from reef.agents.templates import build_torch_policy, build_trainer
from reef.algorithms.ppo import PPO
from reef.callbacks import SampleBatch

SHORT = {"train_batch_size": 64, "sgd_minibatch_size": 32, "num_sgd_iter": 1}


def policy_gradient_loss(policy: Any, model: Any, dist_class: Any, train_batch: Any) -> Any:
    logits, _ = model.from_batch(train_batch)
    action_dist = dist_class(logits, model)
    return -torch.mean(action_dist.logp(train_batch["actions"]) * train_batch["rewards"])


MyTorchPolicy = build_torch_policy(name="MyTorchPolicy", loss_fn=policy_gradient_loss)
MyTrainer = build_trainer(name="MyTrainer", default_policy=MyTorchPolicy)


def test_running() -> None:
    with PPO(env="CartPole-v1", config=SHORT) as trainer:
        assert trainer.train()["training_iteration"] == 1


def test_a_policy_with_a_loss_function_in_a_trainer() -> None:
    with MyTrainer(env="CartPole-v1", config={"train_batch_size": 64}) as trainer:
        assert trainer.train()["timesteps_total"] == 64


def test_a_sample_batch_summarises_itself() -> None:
    with PPO(env="CartPole-v1", config=SHORT | {"train_batch_size": 200}) as trainer:
        batch = SampleBatch.concat_samples(trainer.workers.sample())
    text = repr(batch)
    for start in (
        "'action_logp': np.ndarray((200,), dtype=float32, min=",
        "'actions': np.ndarray((200,), dtype=int64, min=0.0, max=1.0, mean=",
        "'dones': np.ndarray((200,), dtype=bool, min=0.0, max=1.0, mean=",
        "'new_obs': np.ndarray((200, 4), dtype=float32, min=",
        "'obs': np.ndarray((200, 4), dtype=float32, min=",
        "'rewards': np.ndarray((200,), dtype=float32, min=1.0, max=1.0, mean=1.0)",
    ):
        assert start in text


def test_workers_sample_and_a_policy_learns() -> None:
    env = gym.make("CartPole-v1")
    policy = MyTorchPolicy(env.observation_space, env.action_space, {})
    with MyTrainer(env="CartPole-v1", config={"train_batch_size": 64}) as trainer:
        for _ in range(2):
            policy.learn_on_batch(SampleBatch.concat_samples(trainer.workers.sample()))
            weights = policy.get_weights()
            trainer.workers.foreach_worker(lambda worker, weights=weights: worker.get_policy().set_weights(weights))
        held = trainer.get_policy().get_weights()
    assert all((held[name] == weights[name]).all() for name in weights)
