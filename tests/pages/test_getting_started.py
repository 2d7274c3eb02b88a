"""What a person finds on RLlib's page "Getting Started" (Ray 2.9 and 2.10), block by block, with Reef's imports."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from reef import Algorithm, DQNConfig, PPOConfig, pretty_print

SHORT = {"train_batch_size": 64, "sgd_minibatch_size": 32, "num_sgd_iter": 1}


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_first_configuration() -> None:
    algo = (
        PPOConfig()
        .rollouts(num_rollout_workers=0)
        .resources(num_gpus=0)
        .environment(env="CartPole-v1")
        .training(**SHORT)
        .build()
    )
    for i in range(2):
        result = algo.train()
        print(pretty_print(result))
        if i % 5 == 0:
            checkpoint_dir = algo.save()
            print(f"Checkpoint saved in directory {checkpoint_dir}")
    algo.stop()
    algo = Algorithm.from_checkpoint(checkpoint_dir)
    assert algo.iteration == 1
    algo.stop()


def test_an_older_checkpoint_goes_into_an_algorithm_of_the_same_settings() -> None:
    from reef.algorithms.ppo import PPO

    algo = PPO(config=SHORT, env="CartPole-v1")
    algo.train()
    checkpoint_path = algo.save()
    algo.stop()
    algo = PPO(config=SHORT, env="CartPole-v1")
    algo.restore(checkpoint_path)
    assert algo.iteration == 1
    algo.stop()


def test_computing_actions() -> None:
    env_name = "CartPole-v1"
    env = gym.make(env_name)
    algo = PPOConfig().environment(env_name).build()
    episode_reward = 0.0
    terminated = truncated = False
    obs, _ = env.reset()
    while not terminated and not truncated:
        action = algo.compute_single_action(obs)
        obs, reward, terminated, truncated, _ = env.step(action)
        episode_reward += float(reward)
    assert episode_reward >= 8
    algo.stop()


def test_accessing_policy_state() -> None:
    algo = DQNConfig().environment(env="CartPole-v1").build()
    weights = algo.get_policy().get_weights()
    for same in (
        algo.workers.local_worker().policy_map["default_policy"].get_weights(),
        algo.workers.foreach_worker(lambda worker: worker.get_policy().get_weights())[0],
        algo.workers.foreach_worker_with_index(lambda _id, worker: worker.get_policy().get_weights())[0],
    ):
        assert all((same[name] == weights[name]).all() for name in weights)
    algo.stop()


def test_querying_an_action_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    algo = PPOConfig().environment("CartPole-v1").framework("torch").rollouts(num_rollout_workers=0).build()
    policy = algo.get_policy()
    logits, _ = policy.model({"obs": np.array([[0.1, 0.2, 0.3, 0.4]])})
    dist = policy.dist_class(logits, policy.model)
    assert dist.sample().shape == dist.logp([1]).shape == policy.model.value_function().shape == (1,)
    policy.model.base_model.summary()
    assert "Total params: 134,915" in capsys.readouterr().out
    algo.stop()


def test_getting_q_values(capsys: pytest.CaptureFixture[str]) -> None:
    algo = DQNConfig().environment("CartPole-v1").framework("torch").build()
    model = algo.get_policy().model
    assert model.variables()
    model_out = model({"obs": np.array([[0.1, 0.2, 0.3, 0.4]])})
    model.base_model.summary()
    print(model.get_q_value_distributions(model_out)[0])
    model.q_value_head.summary()
    print(model.get_state_value(model_out))
    model.state_value_head.summary()
    printed = capsys.readouterr().out
    assert "tensor([[" in printed
    assert all(f"Total params: {count}" in printed for count in ("67,072", "66,306", "66,049"))
    algo.stop()
