"""What policies have of their own in training, who learns, and what counts as a step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from reef.algorithms.a3c import A3CConfig
from reef.algorithms.dqn import DQNConfig
from reef.algorithms.impala import IMPALAConfig
from reef.algorithms.ppo import PPOConfig
from reef.algorithms.sac import SACConfig
from reef.envs.multi_agent import IndependentAgents
from reef.errors import CallbackError, ConfigError
from reef.nn.policies import ActorCritic, Policy
from reef.run.algorithm import Algorithm

TWO_POLES = {"env": "CartPole-v1", "num_agents": 2}
MAPPING = {"0": "left", "1": "right"}


def config(policies: Any = ("left", "right"), **settings: Any) -> PPOConfig:
    made = PPOConfig().environment(IndependentAgents, env_config=TWO_POLES).debugging(seed=1)
    made = made.rollouts(num_envs_per_worker=2).training(model={"fcnet_hiddens": [4]})
    made = made.training(train_batch_size=64, sgd_minibatch_size=32, num_sgd_iter=2)
    return made.multi_agent(policies=policies, policy_mapping_fn=MAPPING, **settings)


def test_each_policy_learns_by_its_own_settings() -> None:
    own = {"lr": 0.5, "gamma": 0.25, "model": {"fcnet_hiddens": [3, 3]}, "num_sgd_iter": 1}
    with config({"left": {"config": own}, "right": None}).build() as algorithm:
        result = algorithm.train()["info"]["learner"]
        assert result["left"]["learner_stats"]["cur_lr"] == 0.5
        assert result["right"]["learner_stats"]["cur_lr"] == 5e-5
        left, right = (algorithm.learners.learners[name] for name in ("left", "right"))
        assert (left.config.gamma, right.config.gamma) == (0.25, 0.99)
        sizes = [algorithm.get_policy(name).flat.vector.numel() for name in ("left", "right")]
        assert sizes[0] != sizes[1]


def test_a_policy_explores_and_acts_in_its_own_way() -> None:
    own = {"exploration_config": {"type": "EpsilonGreedy", "initial_epsilon": 1.0}}
    settings = DQNConfig().environment(IndependentAgents, env_config=TWO_POLES).training(model={"fcnet_hiddens": [4]})
    settings.multi_agent(policies={"left": {"config": own}, "right": None}, policy_mapping_fn=MAPPING)
    with settings.exploration(exploration_config={"type": "SoftQ"}).build() as algorithm:
        kinds = {name: type(r.exploration).__name__ for name, r in algorithm.workers.local_worker().runners.items()}
    assert kinds == {"left": "EpsilonGreedy", "right": "SoftQ"}


def test_what_replay_discounts_is_of_the_policy() -> None:
    settings = DQNConfig().environment(IndependentAgents, env_config=TWO_POLES).debugging(seed=1)
    settings.multi_agent(policies={"left": {"config": {"gamma": 0.5}}, "right": None}, policy_mapping_fn=MAPPING)
    settings.training(model={"fcnet_hiddens": [4]}, num_steps_sampled_before_learning_starts=8, train_batch_size=4)
    with settings.reporting(min_sample_timesteps_per_iteration=16).build() as algorithm:
        algorithm.train()
        batches = algorithm.memory.sample(8)
    assert set(batches["left"].extras["discounts"].tolist()) == {0.5}
    assert set(batches["right"].extras["discounts"].tolist()) == {np.float32(0.99)}


class Constant(Policy):
    """Prefers the second action, whatever it sees; there is nothing to learn."""

    def dist_inputs(self, obs: torch.Tensor) -> torch.Tensor:
        return torch.tensor([[0.0, 50.0]]).expand(len(obs), 2)


class Own(ActorCritic):
    """A class of a user's."""


def test_a_policy_of_another_class_acts_and_does_not_learn(tmp_path: Path) -> None:
    made = config({"left": (Constant, None, None, {}), "right": {"policy_class": Own}}, policies_to_train=["right"])
    with made.build() as algorithm:
        result = algorithm.train()
        assert result["info"]["learner"].keys() == {"right"}
        assert type(algorithm.get_policy("right")) is Own
        (sample,) = algorithm.workers.sample()
        left = sample.rollouts["left"]
        assert set(left.actions[left.mask].tolist()) == {1}
        checkpoint = algorithm.save(tmp_path / "checkpoint")
        with Algorithm.from_checkpoint(checkpoint) as resumed:
            assert type(resumed.get_policy("left")) is Constant
            assert resumed.train()["hist_stats"]["episode_reward"]


def test_a_class_that_the_algorithm_cannot_train_is_refused() -> None:
    message = "policies: 'left': policy_class makes a Constant, but PPO trains a ActorCritic. Derive it from that"
    with pytest.raises(ConfigError, match=message):
        config({"left": {"policy_class": Constant}, "right": None}).build()
    with pytest.raises(ConfigError, match="policy_class=.* made a dict, expected a Policy"):
        config({"left": {"policy_class": lambda *args: {}}, "right": None}, policies_to_train=["right"]).build()


def test_policies_that_do_not_learn_begin_by_the_seed_and_stay() -> None:
    with config().build() as all_learn, config(policies_to_train=["right"]).build() as one_learns:
        first = all_learn.get_weights()["left"]
        one_learns.train()
        for key, values in one_learns.get_weights()["left"].items():
            np.testing.assert_array_equal(values, first[key])


def test_weights_set_by_hand_reach_those_that_do_not_learn() -> None:
    with config(policies_to_train=["right"]).build() as algorithm:
        algorithm.set_weights({"left": algorithm.get_weights()["right"]})
        algorithm.train()
        left = algorithm.workers.local_worker().get_weights()["left"]
        assert algorithm.learners.weights().keys() == {"right"}
        np.testing.assert_array_equal(left, algorithm.fixed_weights()["left"])


def test_a_function_says_for_each_batch_who_learns() -> None:
    asked = []

    def trains(policy_id: str, batch: Any) -> bool:
        asked.append((policy_id, len(batch)))
        return policy_id == ("left" if len(asked) <= 2 else "right")

    with config(policies_to_train=trains).build() as algorithm:
        learned = [set(algorithm.train()["info"]["learner"]) for _ in range(2)]
    assert learned == [{"left"}, {"right"}]
    assert [policy_id for policy_id, _ in asked] == ["left", "right"] * 2
    assert all(steps > 0 for _, steps in asked)


@pytest.mark.parametrize("kind", [PPOConfig, A3CConfig, IMPALAConfig, DQNConfig])
def test_a_function_may_let_none_learn(kind: Any) -> None:
    made = kind().environment(IndependentAgents, env_config=TWO_POLES).debugging(seed=1)
    made.training(model={"fcnet_hiddens": [4]}, train_batch_size=128).rollouts(rollout_fragment_length=32)
    if kind is DQNConfig:
        made.training(num_steps_sampled_before_learning_starts=64)
    made.multi_agent(policies=("left", "right"), policy_mapping_fn=MAPPING, policies_to_train=lambda *_: False)
    made.reporting(min_sample_timesteps_per_iteration=200, min_train_timesteps_per_iteration=50)
    with made.build() as algorithm:
        result = algorithm.train()
    assert result["info"]["learner"] == {}
    assert result["num_env_steps_sampled"] >= 200
    assert result["num_env_steps_trained"] == result["num_agent_steps_trained"] == 0


def test_steps_of_agents_fill_the_batch() -> None:
    made = config(count_steps_by="agent_steps").rollouts(rollout_fragment_length=8)
    with made.reporting(min_sample_timesteps_per_iteration=96).build() as algorithm:
        result = algorithm.train()
        assert algorithm.timestep == result["num_agent_steps_sampled"] == result["agent_timesteps_total"]
        # 2 environments of 2 agents for 8 steps are 32 at most; a batch is at least 64, an iteration at least 96
        assert 96 <= result["num_agent_steps_trained"] < 192
        assert result["num_env_steps_trained"] == result["timesteps_total"] < result["num_agent_steps_trained"]
        assert algorithm.workers.local_worker().timestep == algorithm.timestep, "schedules follow it"


@pytest.mark.parametrize("kind", [DQNConfig, SACConfig])
def test_in_lockstep_all_policies_replay_the_same_steps(kind: Any, tmp_path: Path) -> None:
    env_config = TWO_POLES if kind is DQNConfig else {"env": "Pendulum-v1", "num_agents": 3}
    settings = kind().environment(IndependentAgents, env_config=env_config).debugging(seed=1)
    mapping = MAPPING if kind is DQNConfig else {"0": "left", "1": "right", "2": "right"}
    settings.multi_agent(policies=["left", "right"], policy_mapping_fn=mapping, replay_mode="lockstep")
    settings.training(model={"fcnet_hiddens": [4]}, num_steps_sampled_before_learning_starts=8, train_batch_size=4)
    settings.training(replay_buffer_config={"prioritized_replay": False}, training_intensity=4.0)
    settings.rollouts(num_envs_per_worker=2)
    with settings.reporting(min_sample_timesteps_per_iteration=32).build() as algorithm:
        result = algorithm.train()
        left, right = (algorithm.memory.buffers[name] for name in ("left", "right"))
        assert len(left) == len(right) == 32
        if kind is SACConfig:
            steps = {name: learner.steps for name, learner in algorithm.learners.learners.items()}
            assert steps["left"] == steps["right"] > 20, "whatever number of agents a policy has"
            assert result["num_env_steps_trained"] == 4 * steps["left"]
            assert result["num_agent_steps_trained"] == 12 * steps["left"]
            batches = algorithm.memory.sample(5)
            assert [len(batches[name]) for name in ("left", "right")] == [5, 10]
        checkpoint = algorithm.save(tmp_path / "checkpoint")
        with Algorithm.from_checkpoint(checkpoint) as resumed:
            first, second = algorithm.train(), resumed.train()
        assert first["info"]["learner"] == second["info"]["learner"]


def all_see_all(agent_obs: dict[Any, Any]) -> dict[Any, Any]:
    """The observations of all, one's own first; zeros for those that have ended."""
    nothing = np.zeros(4, np.float32)
    return {agent: np.concatenate([own, agent_obs.get(1 - agent, nothing)]) for agent, own in agent_obs.items()}


def test_a_function_makes_the_observations() -> None:
    wide = {"observation_space": gym.spaces.Box(-np.inf, np.inf, (8,))}
    made = config({"left": wide, "right": wide}, observation_fn=all_see_all)
    with made.build() as algorithm:
        assert algorithm.get_policy("left").observation_layout.shape == (8,)
        (sample,) = algorithm.workers.sample()
        left, right = sample.rollouts["left"], sample.rollouts["right"]
        both = left.mask & right.mask
        np.testing.assert_array_equal(left.obs[both][:, 4:], right.obs[both][:, :4])
        algorithm.train()
    with pytest.raises(CallbackError, match="observation_fn returned .*: expected a dict with an observation for each"):
        config(observation_fn=lambda agent_obs: {}).build().train()
    one = PPOConfig().environment("CartPole-v1").multi_agent(observation_fn=all_see_all)
    with pytest.raises(ConfigError, match="observation_fn=.*has one agent"):
        one.build()


def test_a_space_that_is_not_that_of_the_agents_is_refused() -> None:
    wide = {"observation_space": gym.spaces.Box(-np.inf, np.inf, (8,))}
    with pytest.raises(ConfigError, match="'left': observation_space=.* does not fit that of its agent 0"):
        config({"left": wide, "right": None}).build()


@pytest.mark.parametrize("after", [["right"], None])
def test_another_policy_may_learn_from_a_checkpoint_on(after: Any, tmp_path: Path) -> None:
    before = None if after else ["right"]
    with config(policies_to_train=before).build() as one, config(policies_to_train=after).build() as two:
        one.train()
        two.restore(one.save(tmp_path / "checkpoint"))
        for name, weights in one.get_weights().items():
            for key, values in weights.items():
                np.testing.assert_array_equal(two.get_weights()[name][key], values)
        learned = two.learners.weights()
        np.testing.assert_array_equal(learned["right"], one.learners.weights()["right"])
        if after is None:
            np.testing.assert_array_equal(learned["left"], one.fixed_weights()["left"])
        result = two.train()
        assert result["info"]["learner"].keys() == set(after or ["left", "right"])
