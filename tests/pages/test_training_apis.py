"""What a person finds on RLlib's page "Training APIs" (Ray 0.8 to 1.13), block by block, with Reef's imports.

Runs are shorter here. Command lines and sweeps are those of tests/test_docs.py and tests/trainer/cli.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import reef.agents.ppo as ppo
from gymnasium.envs.classic_control import CartPoleEnv
from reef.agents.dqn import DQNTrainer
from reef.agents.pg import PGTrainer
from reef.agents.ppo import PPOTrainer

from reef import TaskSettableEnv, pretty_print
from reef.callbacks import DefaultCallbacks, MultiCallbacks, get_global_worker
from reef.models.preprocessors import get_preprocessor
from reef.rollout.exploration import StochasticSampling

SEED = {"seed": 1}  # with which the first steps end an episode
SHORT = {"train_batch_size": 64, "sgd_minibatch_size": 32, "num_sgd_iter": 1} | SEED


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_basic_usage(capsys: pytest.CaptureFixture[str]) -> None:
    config = ppo.DEFAULT_CONFIG.copy()
    config["num_gpus"] = 0
    with pytest.warns(FutureWarning, match="num_rollout_workers"):
        config["num_workers"] = 0
    config.update(SHORT)
    trainer = ppo.PPOTrainer(config=config, env="CartPole-v1")
    for i in range(2):
        result = trainer.train()
        print(pretty_print(result))
        if i % 100 == 0:
            checkpoint = trainer.save()
            print("checkpoint saved at", checkpoint)
    trainer.restore(checkpoint)
    assert trainer.iteration == 1
    trainer.stop()
    assert "episode_reward_mean" in capsys.readouterr().out


def test_computing_actions_as_the_trainer_does() -> None:
    trainer = PPOTrainer(env="CartPole-v1", config=SHORT | {"observation_filter": "MeanStdFilter"})
    trainer.train()
    observation, state, policy_id = [0.1, 0.2, 0.3, 0.4], [], "default_policy"
    prev_action = prev_reward = info = None
    preprocessed = trainer.workers.local_worker().preprocessors[policy_id].transform(observation)
    filtered_obs = trainer.workers.local_worker().filters[policy_id](preprocessed, update=False)
    action, after, logits = trainer.get_policy(policy_id).compute_single_action(
        filtered_obs, state, prev_action, prev_reward, info, explore=False, clip_actions=trainer.config.clip_actions
    )
    assert action == trainer.compute_action(observation, None, None, None, None, policy_id, explore=False)
    fetched = trainer.compute_action(observation, state, prev_action, prev_reward, info, policy_id, True, explore=False)
    assert fetched[:2] == (action, after)
    np.testing.assert_array_equal(fetched[2]["action_dist_inputs"], logits["action_dist_inputs"])
    trainer.stop()


def test_accessing_policy_state() -> None:
    trainer = PPOTrainer(env="CartPole-v1", config=SHORT)
    weights = trainer.get_policy().get_weights()
    for same in (
        trainer.workers.local_worker().policy_map["default_policy"].get_weights(),
        trainer.workers.foreach_worker(lambda ev: ev.get_policy().get_weights())[0],
        trainer.workers.foreach_worker_with_index(lambda ev, i: ev.get_policy().get_weights())[0],
    ):
        assert all((same[name] == weights[name]).all() for name in weights)
    trainer.stop()


def test_preprocessing_observations() -> None:
    env = gym.make("FrozenLake-v1")
    prep = get_preprocessor(env.observation_space)(env.observation_space)
    obs, _ = env.reset()
    assert prep.transform(obs).shape == (16,)


def test_querying_an_action_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    trainer = PPOTrainer(env="CartPole-v1", config={"num_rollout_workers": 0})
    policy = trainer.get_policy()
    logits, _ = policy.model.from_batch({"obs": np.array([[0.1, 0.2, 0.3, 0.4]])})
    dist = policy.dist_class(logits, policy.model)
    assert dist.sample().shape == (1,)
    assert dist.logp([1]).shape == (1,)
    assert policy.model.value_function().shape == (1,)
    policy.model.base_model.summary()
    assert "Total params: 134,915" in capsys.readouterr().out
    trainer.stop()


def test_getting_q_values(capsys: pytest.CaptureFixture[str]) -> None:
    trainer = DQNTrainer(env="CartPole-v1", config={})
    model = trainer.get_policy().model
    assert len(model.variables()) == 12
    model_out = model.from_batch({"obs": np.array([[0.1, 0.2, 0.3, 0.4]])})
    model.base_model.summary()
    values, logits = model.get_q_value_distributions(model_out)
    assert (values.shape, logits.shape) == ((1, 2), (1, 2, 1))
    model.q_value_head.summary()
    assert model.get_state_value(model_out).shape == (1, 1)
    model.state_value_head.summary()
    printed = capsys.readouterr().out
    # RLlib's first model has 257 parameters more: an output that nothing reads
    assert [f"Total params: {count}" in printed for count in ("67,072", "66,306", "66,049")] == [True] * 3
    trainer.stop()


def test_callbacks_and_custom_metrics(capsys: pytest.CaptureFixture[str]) -> None:
    def on_episode_start(info: Any) -> None:
        episode = info["episode"]
        print(f"episode {episode.episode_id} started")
        episode.user_data["pole_angles"] = []

    def on_episode_step(info: Any) -> None:
        episode = info["episode"]
        episode.user_data["pole_angles"].append(abs(episode.last_observation_for()[2]))

    def on_episode_end(info: Any) -> None:
        episode = info["episode"]
        pole_angle = np.mean(episode.user_data["pole_angles"])
        print(f"episode {episode.episode_id} ended with length {episode.length} and pole angles {pole_angle}")
        episode.custom_metrics["pole_angle"] = pole_angle

    def on_train_result(info: Any) -> None:
        print(f"trainer.train() result: {info['trainer']} -> {info['result']['episodes_this_iter']} episodes")

    def on_postprocess_traj(info: Any) -> None:
        print(f"postprocessed {info['post_batch'].count} steps")

    functions = (on_episode_start, on_episode_step, on_episode_end, on_train_result, on_postprocess_traj)
    callbacks = {function.__name__: function for function in functions}
    trainer = PGTrainer(config=SEED | {"env": "CartPole-v1", "callbacks": callbacks, "train_batch_size": 100})
    assert trainer.train()["custom_metrics"]["pole_angle_mean"] > 0
    trainer.stop()
    printed = capsys.readouterr().out
    assert all(words in printed for words in ("started", "pole angles", "episodes\n", "postprocessed"))


class Phases(CartPoleEnv):
    """What a person has as YourEnv."""

    def __init__(self, env_config: Any) -> None:
        super().__init__()
        self.phase = 0

    def set_phase(self, phase: int) -> None:
        self.phase = phase


def phases(worker: Any) -> list[int]:
    return worker.foreach_env(lambda env: env.unwrapped.phase)


def test_a_curriculum_between_calls_of_train() -> None:
    trainer = PPOTrainer(config=SHORT, env=Phases)
    result = trainer.train()
    phase = 2 if result["episode_reward_mean"] > 200 else 1
    trainer.workers.foreach_worker(lambda ev: ev.foreach_env(lambda env: env.set_phase(phase)))
    assert trainer.workers.foreach_worker(phases) == [[1]]
    trainer.stop()


def test_a_curriculum_by_callbacks() -> None:
    def on_train_result(info: Any) -> None:
        phase = 2 if info["result"]["episode_reward_mean"] > 200 else 1
        info["trainer"].workers.foreach_worker(lambda ev: ev.foreach_env(lambda env: env.set_phase(phase)))

    trainer = PPOTrainer(config=SHORT | {"env": Phases, "callbacks": {"on_train_result": on_train_result}})
    trainer.train()
    assert trainer.workers.foreach_worker(phases) == [[1]]
    trainer.stop()


def test_episode_traces(tmp_path: Path) -> None:
    trainer = PPOTrainer(config=SHORT | {"output": str(tmp_path / "debug")}, env="CartPole-v1")
    trainer.train()
    trainer.stop()
    assert any(files for _, _, files in os.walk(tmp_path / "debug"))


def test_the_model_of_a_policy_in_a_callback() -> None:
    values = []

    def on_postprocess_traj(info: Any) -> None:
        policy = get_global_worker().policy_map["default_policy"]
        policy.model.from_batch(info["post_batch"])
        values.append(policy.model.value_function())

    callbacks = {"on_postprocess_traj": on_postprocess_traj}
    trainer = PPOTrainer(config=SHORT | {"callbacks": callbacks}, env="CartPole-v1")
    trainer.train()
    trainer.stop()
    assert sum(map(len, values)) == 64


class Starts(DefaultCallbacks):
    def on_episode_start(self, *, worker: Any, base_env: Any, policies: Any, episode: Any, **kwargs: Any) -> None:
        episode.user_data["start"] = episode.last_observation_for()


class Ends(DefaultCallbacks):
    def on_episode_end(self, *, worker: Any, base_env: Any, policies: Any, episode: Any, **kwargs: Any) -> None:
        episode.custom_metrics["start"] = float(episode.user_data["start"][0])


def test_chaining_callbacks() -> None:
    trainer = PPOTrainer(config=SHORT | {"callbacks": MultiCallbacks([Starts, Ends])}, env="CartPole-v1")
    assert abs(trainer.train()["custom_metrics"]["start_mean"]) < 0.05
    trainer.stop()


@pytest.mark.parametrize("explore", [False, True])
def test_a_call_decides_whether_to_explore_over_the_setting(explore: bool) -> None:
    epsilon = {"type": "EpsilonGreedy", "initial_epsilon": 1.0, "final_epsilon": 0.02, "epsilon_timesteps": 10000}
    trainer = DQNTrainer(config={"explore": explore, "exploration_config": epsilon}, env="CartPole-v1")
    policy, observations = trainer.get_policy(), np.zeros((40, 4), np.float32)
    for given, explores in ((None, explore), (False, False), (True, True)):
        single = {trainer.compute_action(observations[0], explore=given) for _ in range(40)}
        several = set(policy.compute_actions(observations, explore=given)[0].tolist())
        assert len(single) == len(several) == 1 + explores
    trainer.stop()


@pytest.mark.parametrize(
    ("family", "exploration"),
    [
        (DQNTrainer, {"type": "SoftQ", "temperature": 1.0}),
        (PPOTrainer, {"type": "StochasticSampling", "random_timesteps": 0}),
    ],
)
def test_other_explorations(family: Any, exploration: dict[str, Any]) -> None:
    trainer = family(config={"explore": True, "exploration_config": exploration}, env="CartPole-v1")
    assert len(set(trainer.get_policy().compute_actions(np.zeros((40, 4)))[0].tolist())) == 2
    trainer.stop()


class Cautious(StochasticSampling):
    """Takes the best action while few steps were taken."""

    def get_action(self, distribution: Any, timestep: int, generator: Any) -> Any:
        return super().explore(distribution, timestep, generator)

    def explore(self, distribution: Any, timestep: int, generator: Any) -> Any:
        return distribution.deterministic() if timestep < 64 else self.get_action(distribution, timestep, generator)


def test_an_exploration_of_ones_own_is_asked_for_actions() -> None:
    trainer = PPOTrainer(config=SHORT | {"exploration_config": {"type": Cautious}}, env="CartPole-v1")

    def kinds() -> int:
        return len(set(trainer.get_policy().compute_actions(np.zeros((40, 4)))[0].tolist()))

    assert kinds() == 1
    trainer.train()
    assert kinds() == 2
    trainer.stop()


def test_evaluation_without_exploration() -> None:
    settings = {"evaluation_interval": 1, "evaluation_duration": 2, "evaluation_config": {"explore": False}}
    trainer = PPOTrainer(config=SHORT | settings, env="CartPole-v1")
    evaluation = trainer.train()["evaluation"]
    assert evaluation["episodes_this_iter"] == 2
    assert evaluation["episode_reward_min"] <= evaluation["episode_reward_mean"] <= evaluation["episode_reward_max"]
    trainer.stop()


class MyEnv(CartPoleEnv, TaskSettableEnv):
    """Has a difficulty."""

    def __init__(self, env_config: Any) -> None:
        super().__init__()
        self.current_difficulty = 0

    def get_task(self) -> int:
        return self.current_difficulty

    def set_task(self, task: int) -> None:
        self.current_difficulty = task


def curriculum_fn(train_results: Any, task_settable_env: Any, env_ctx: Any) -> int:
    return task_settable_env.get_task() + 1


def test_a_curriculum_by_a_function() -> None:
    trainer = PPOTrainer(config=SHORT | {"env": MyEnv, "env_task_fn": curriculum_fn})
    for _ in range(2):
        trainer.train()
    assert trainer.workers.foreach_worker(lambda ev: ev.foreach_env(lambda env: env.unwrapped.get_task())) == [[2]]
    trainer.stop()
