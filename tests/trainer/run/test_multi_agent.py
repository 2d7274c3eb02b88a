"""PPO with several agents and policies: what learns, what stays, and what a checkpoint brings back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from reef.algorithms.dqn import DQNConfig
from reef.algorithms.ppo import PPOConfig
from reef.envs.multi_agent import IndependentAgents, MultiAgentEnv
from reef.errors import ConfigError
from reef.run.algorithm import Algorithm

TWO_POLES = {"env": "CartPole-v1", "num_agents": 2}


def config(**settings: Any) -> PPOConfig:
    made = PPOConfig().environment(IndependentAgents, env_config=TWO_POLES).debugging(seed=1)
    made = made.rollouts(num_envs_per_worker=2).training(model={"fcnet_hiddens": [4]})
    made = made.training(train_batch_size=64, sgd_minibatch_size=32, num_sgd_iter=2)
    return made.multi_agent(policies=["left", "right"], policy_mapping_fn={"0": "left", "1": "right"}, **settings)


def test_each_policy_learns_from_its_agents() -> None:
    with config().build() as algorithm:
        before = algorithm.get_weights()
        result = algorithm.train()
        after = algorithm.get_weights()
        assert before.keys() == after.keys() == {"left", "right"}
        for name in before:
            assert all((before[name][key] != after[name][key]).any() for key in before[name] if "bias" not in key)
        assert any((after["left"][key] != after["right"][key]).any() for key in after["left"])
        assert result["info"]["learner"].keys() == {"left", "right"}
        assert result["num_env_steps_trained"] == 64
        assert 64 < result["num_agent_steps_trained"] == result["num_agent_steps_sampled"] <= 128
        assert algorithm.compute_single_action(np.zeros(4, np.float32), policy_id="right") in (0, 1)


def test_the_policies_begin_with_weights_of_their_own_which_the_seed_says() -> None:
    with config().build() as one, config().build() as two:
        assert (one.get_weights()["left"]["pi.weight"] != one.get_weights()["right"]["pi.weight"]).any()
        np.testing.assert_array_equal(*(each.get_weights()["right"]["pi.weight"] for each in (one, two)))


def test_a_policy_that_is_not_trained_stays_as_it_is() -> None:
    with config(policies_to_train=["right"]).build() as algorithm:
        before = algorithm.get_weights()
        result = algorithm.train()
        after = algorithm.get_weights()
        assert result["info"]["learner"].keys() == {"right"}
        assert all((before["left"][key] == after["left"][key]).all() for key in before["left"])
        assert any((before["right"][key] != after["right"][key]).any() for key in before["right"])


def test_a_shared_policy_learns_from_all_agents() -> None:
    with config().multi_agent(policies=["both"], policy_mapping_fn=None).build() as algorithm:
        result = algorithm.train()
        assert result["info"]["learner"].keys() == {"both"}
        assert result["num_agent_steps_trained"] > 64


def test_a_restored_run_goes_on_bit_for_bit(tmp_path: Path) -> None:
    with config().build() as whole:
        whole.train()
        checkpoint = whole.save(tmp_path / "checkpoint")
        with Algorithm.from_checkpoint(checkpoint) as resumed:
            for _ in range(2):
                first, second = whole.train(), resumed.train()
                assert first["hist_stats"]["episode_reward"] == second["hist_stats"]["episode_reward"]
            for name, weights in whole.get_weights().items():
                for key, values in weights.items():
                    np.testing.assert_array_equal(values, resumed.get_weights()[name][key])


class Opposites(MultiAgentEnv):
    """Both see a bit for 8 steps: agent "same" is paid for naming it, agent "other" for naming the other one."""

    possible_agents = ("same", "other")

    def __init__(self, context: Any) -> None:
        self.observation_spaces = dict.fromkeys(self.possible_agents, gym.spaces.Box(0, 1, (1,)))
        self.action_spaces = dict.fromkeys(self.possible_agents, gym.spaces.Discrete(2))

    def seen(self) -> dict[Any, Any]:
        self.bit = int(self.random.integers(2))
        return dict.fromkeys(self.possible_agents, np.array([self.bit], np.float32))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.random, self.steps = np.random.default_rng(seed), 0
        return self.seen(), {}

    def step(self, actions: dict[Any, Any]) -> Any:
        self.steps += 1
        rewards = {"same": float(actions["same"] == self.bit), "other": float(actions["other"] != self.bit)}
        return self.seen(), rewards, {"__all__": self.steps == 8}, {}, {}


def test_each_learns_its_own_task() -> None:
    settings = config().environment(Opposites).multi_agent(policies=["same", "other"], policy_mapping_fn=None)
    settings = settings.training(lr=0.02, train_batch_size=256, sgd_minibatch_size=64, num_sgd_iter=4)
    with settings.build() as algorithm:
        for _ in range(15):
            algorithm.train()
        for bit in (0, 1):
            obs = np.array([bit], np.float32)
            chosen = {p: algorithm.compute_single_action(obs, policy_id=p, explore=False) for p in ("same", "other")}
            assert chosen == {"same": bit, "other": 1 - bit}


def test_evaluation_reports_each_policy() -> None:
    settings = config().evaluation(evaluation_interval=1, evaluation_duration=3)
    with settings.build() as algorithm:
        found = algorithm.train()["evaluation"]
        assert found["episodes_this_iter"] == 3
        assert found["policy_reward_mean"].keys() == {"left", "right"}
        assert found["episode_reward_mean"] == pytest.approx(sum(found["policy_reward_mean"].values()))


def test_a_memory_for_each_agent() -> None:
    settings = config().training(model={"use_lstm": True, "lstm_cell_size": 4, "fcnet_hiddens": [4]})
    with settings.build() as algorithm:
        before = algorithm.get_weights()["left"]["memory.cell.weight_hh_l0"]
        algorithm.train()
        assert (before != algorithm.get_weights()["left"]["memory.cell.weight_hh_l0"]).any()


@pytest.mark.parametrize("memory", [{}, {"use_lstm": True, "lstm_cell_size": 4}])
def test_dqn_with_two_policies(memory: dict[str, Any]) -> None:
    made = DQNConfig().environment(IndependentAgents, env_config=TWO_POLES).debugging(seed=1)
    made = made.multi_agent(policies=["left", "right"], policy_mapping_fn={"0": "left", "1": "right"})
    made = made.training(model={"fcnet_hiddens": [4]} | memory, num_steps_sampled_before_learning_starts=64)
    with made.reporting(min_sample_timesteps_per_iteration=200).build() as algorithm:
        before = algorithm.get_weights()
        algorithm.train()
        after = algorithm.get_weights()
        for name in before:
            assert any((before[name][key] != after[name][key]).any() for key in before[name])


class Rare(Opposites):
    """Agent "other" comes with step 200."""

    def seen(self) -> dict[Any, Any]:
        found = super().seen()
        return found if self.steps >= 200 else {"same": found["same"]}

    def step(self, actions: dict[Any, Any]) -> Any:
        self.steps += 1
        return self.seen(), dict.fromkeys(actions, 1.0), {"__all__": self.steps == 300}, {}, {}


def test_a_policy_without_a_step_in_a_batch_waits() -> None:
    settings = config().environment(Rare).multi_agent(policies=["same", "other"], policy_mapping_fn=None)
    with settings.build() as algorithm:
        trained = [set(algorithm.train()["info"]["learner"]) for _ in range(8)]
    assert trained[0] == {"same"}
    assert {"same", "other"} in trained


def test_steps_of_environments_count_once_for_all_policies() -> None:
    made = DQNConfig().environment(IndependentAgents, env_config=TWO_POLES).debugging(seed=1)
    made = made.multi_agent(policies=["left", "right"], policy_mapping_fn={"0": "left", "1": "right"})
    made = made.training(model={"fcnet_hiddens": [4]}, train_batch_size=16, num_steps_sampled_before_learning_starts=32)
    with made.reporting(min_sample_timesteps_per_iteration=64).build() as algorithm:
        result = algorithm.train()
    assert result["num_agent_steps_trained"] == 2 * result["num_env_steps_trained"] > 0


def test_evaluation_in_an_environment_with_fewer_agents() -> None:
    fewer = {"env_config": {"num_agents": 1}}
    settings = config().evaluation(evaluation_interval=1, evaluation_duration=2, evaluation_config=fewer)
    settings = settings.multi_agent(policies=["left", "right"], policy_mapping_fn={"0": "left", "1": "right"})
    with pytest.raises(ConfigError, match="no agent acts with 'right'"):
        settings.build()
