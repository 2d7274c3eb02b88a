"""Policies that are added and removed while an algorithm trains.

It tests reef.rollout.policies.held too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from reef.algorithms.a2c import A2CConfig
from reef.algorithms.apex import ApexDQNConfig
from reef.algorithms.appo import APPOConfig
from reef.algorithms.dqn import DQNConfig
from reef.algorithms.impala import IMPALAConfig
from reef.algorithms.ppo import PPOConfig
from reef.callbacks import MultiAgentBatch
from reef.config import AlgorithmConfig
from reef.envs.multi_agent import MultiAgentEnv
from reef.errors import CheckpointError, ConfigError, ReefError
from reef.run.algorithm import Algorithm


class Duel(MultiAgentEnv):
    """Two agents act in turns for four steps; who names the bit of the observation gets 1."""

    possible_agents = (0, 1)
    agents_take_turns = True

    def __init__(self, context: Any) -> None:
        self.observation_spaces = dict.fromkeys(self.possible_agents, gym.spaces.Box(0, 1, (1,)))
        self.action_spaces = dict.fromkeys(self.possible_agents, gym.spaces.Discrete(2))

    def seen(self) -> dict[Any, Any]:
        self.bit = int(self.random.integers(2))
        return {self.steps % 2: np.array([self.bit], np.float32)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.random, self.steps = np.random.default_rng(seed), 0
        return self.seen(), {}

    def step(self, actions: dict[Any, Any]) -> Any:
        ((agent, action),) = actions.items()
        self.steps += 1
        rewards = {agent: float(action == self.bit)}
        return self.seen(), rewards, {"__all__": self.steps == 4}, {}, {}


def against_the_past(agent_id: int, episode: Any) -> str:
    """Who plays main changes; the other one acts with a policy of the past, if there is one."""
    past = [policy_id for policy_id in episode.policies if policy_id != "main"]
    if agent_id == episode.episode_id % 2 or not past:
        return "main"
    return past[episode.episode_id // 2 % len(past)]


def config(kind: type[AlgorithmConfig] = PPOConfig, **settings: Any) -> Any:
    made = kind().environment(Duel).debugging(seed=1).rollouts(num_envs_per_worker=2)
    made = made.multi_agent(policies=["main"], policy_mapping_fn=against_the_past, policies_to_train=["main"])
    made.training(model={"fcnet_hiddens": [4]}, **settings)
    if kind is PPOConfig:
        made.training(train_batch_size=64, sgd_minibatch_size=32, num_sgd_iter=2, lr=0.01)
    return made


def weights(algorithm: Algorithm, policy_id: str) -> np.ndarray:
    return algorithm.get_policy(policy_id).flat.numpy()


def test_a_policy_of_the_past_plays_and_does_not_learn() -> None:
    with config().build() as algorithm:
        algorithm.train()
        past = algorithm.add_policy("past", policy=algorithm.get_policy("main"))
        assert algorithm.get_policy("past") is past
        before = weights(algorithm, "main")
        np.testing.assert_array_equal(weights(algorithm, "past"), before)
        result = algorithm.train()
        np.testing.assert_array_equal(weights(algorithm, "past"), before)
        assert (weights(algorithm, "main") != before).any()
        assert result["policy_reward_mean"].keys() == {"main", "past"}
        assert result["info"]["learner"].keys() == {"main"}
        assert algorithm.learners.weights().keys() == {"main"}, "what does not learn has no learner"
        assert 0 < result["num_agent_steps_trained"] < result["num_agent_steps_sampled"]


def test_a_policy_that_learns_has_settings_of_its_own() -> None:
    with config().build() as algorithm:
        algorithm.train()
        algorithm.add_policy("new", config={"lr": 0.5}, policies_to_train=["main", "new"])
        result = algorithm.train()
        rates = {name: own["learner_stats"]["cur_lr"] for name, own in result["info"]["learner"].items()}
        assert rates == {"main": 0.01, "new": 0.5}
        assert algorithm.config.for_policy("new").lr == 0.5


def test_one_that_did_not_learn_begins_to_with_its_weights() -> None:
    with config().build() as algorithm:
        algorithm.train()
        algorithm.add_policy("past", policy=algorithm.get_policy("main"))
        before = weights(algorithm, "past")
        algorithm.add_policy("other", policies_to_train=["main", "past"])
        np.testing.assert_array_equal(algorithm.learners.weights()["past"], before)
        assert "past" in algorithm.train()["info"]["learner"]
        assert (weights(algorithm, "past") != before).any()


def test_the_filter_of_a_policy_goes_with_it() -> None:
    with config().rollouts(observation_filter="MeanStdFilter").build() as algorithm:
        algorithm.train()
        algorithm.add_policy("past", policy=algorithm.get_policy("main"))
        filters = algorithm.workers.local_worker().filters
        assert filters["past"].state()["stat"]["count"] == filters["main"].state()["stat"]["count"] > 0


def test_a_policy_is_removed() -> None:
    with config().build() as algorithm:
        algorithm.add_policy("one")
        algorithm.add_policy("two")
        algorithm.train()
        algorithm.remove_policy("one")
        assert list(algorithm.config.policies) == ["main", "two"]
        result = algorithm.train()
        assert "one" not in algorithm.workers.local_worker().policy_map
        (sample,) = algorithm.workers.sample()
        assert sample.rollouts.keys() == {"main", "two"}
        assert all(episode.policy_rewards.keys() <= {"main", "two"} for episode in sample.episodes)
        assert result["num_env_steps_trained"] == 128
        with pytest.raises(KeyError, match="PolicyID 'one' not found in PolicyMap"):
            algorithm.remove_policy("one")


def test_the_mapping_changes_with_the_next_episodes() -> None:
    with config().build() as algorithm:
        algorithm.train()
        algorithm.add_policy("alone", policy_mapping_fn=lambda agent, episode: "alone", policies_to_train=["alone"])
        for _ in range(2):
            result = algorithm.train()
        assert result["info"]["learner"].keys() == {"alone"}


@pytest.mark.parametrize("kind", [PPOConfig, DQNConfig])
def test_a_checkpoint_has_the_policies_that_there_are(kind: type[AlgorithmConfig], tmp_path: Path) -> None:
    made = config(kind)
    if kind is DQNConfig:
        made.training(num_steps_sampled_before_learning_starts=16, train_batch_size=8)
        made.reporting(min_sample_timesteps_per_iteration=64)
    with made.build() as whole:
        whole.train()
        whole.add_policy("past", policy=whole.get_policy("main"))
        whole.add_policy("learns", config={"gamma": 0.5}, policies_to_train=["main", "learns"])
        whole.train()
        checkpoint = whole.save(tmp_path / "checkpoint")
        expected = whole.train()
        for resumed in (Algorithm.from_checkpoint(checkpoint), made.build()):
            with resumed:
                resumed.restore(checkpoint)
                assert list(resumed.config.policies) == ["main", "past", "learns"]
                assert resumed.config.for_policy("learns").gamma == 0.5
                result = resumed.train()
                assert result["hist_stats"] == expected["hist_stats"]
                for name in whole.config.policies:
                    np.testing.assert_array_equal(weights(resumed, name), weights(whole, name))


def main_alone(agent_id: int, episode: Any) -> str:
    return "main"


def test_a_checkpoint_has_the_mapping_that_there_was(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    both = config().multi_agent(policies=["main", "past"])
    with both.build() as changed:
        changed.set_policies({}, policy_mapping_fn=main_alone)
        changed.train()
        checkpoint = changed.save(tmp_path / "checkpoint")
        expected = changed.train()
    with both.build() as algorithm:
        algorithm.restore(checkpoint)
        assert algorithm.config.policy_mapping_fn.endswith("test_changes:main_alone")
        assert "policy_mapping_fn is that of the checkpoint" in caplog.text
        result = algorithm.train()
        assert result["policy_reward_mean"] == expected["policy_reward_mean"]
    with both.copy().multi_agent(policy_mapping_fn={"0": "main", "1": "past"}).build() as fixed:
        fixed.restore(checkpoint)
        assert fixed.config.policy_mapping_fn == {"0": "main", "1": "past"}, "it is not asked in each episode"


@pytest.mark.parametrize("kind", [PPOConfig, DQNConfig])
def test_a_state_that_does_not_fit_changes_no_policy(kind: type[AlgorithmConfig]) -> None:
    with config(kind).build() as wide:
        wide.add_policy("past", policy=wide.get_policy("main"))
        state = wide.state()
    made = config(kind).training(model={"fcnet_hiddens": [3]})
    with made.build() as algorithm:
        before = weights(algorithm, "main")
        runners = algorithm.workers.local_worker().runners
        with pytest.raises(CheckpointError, match="fcnet_hiddens"):
            algorithm.set_state(state)
        assert list(algorithm.config.policies) == ["main"]
        assert algorithm.workers.local_worker().runners is runners
        np.testing.assert_array_equal(weights(algorithm, "main"), before)
        algorithm.train()


def test_evaluation_plays_with_the_new_policies() -> None:
    with config().evaluation(evaluation_interval=1, evaluation_duration=4).build() as algorithm:
        assert algorithm.train()["evaluation"]["policy_reward_mean"].keys() == {"main"}
        algorithm.add_policy("past", policy=algorithm.get_policy("main"))
        found = algorithm.train()["evaluation"]
        assert found["policy_reward_mean"].keys() == {"main", "past"}
        local = algorithm.evaluation.workers.local_worker()
        np.testing.assert_array_equal(local.get_weights()["past"], weights(algorithm, "past"))


def test_an_added_policy_learns_on_batches_and_one_that_does_not_learn_says_so() -> None:
    with config().build() as algorithm:
        algorithm.add_policy("new", policy=algorithm.get_policy("main"), policies_to_train=["main", "new"])
        samples = MultiAgentBatch.concat_samples(algorithm.workers.sample()).policy_batches["new"]
        assert "learner_stats" in algorithm.get_policy("new").learn_on_batch(samples)
        algorithm.add_policy("past", policy=algorithm.get_policy("main"))
        with pytest.raises(ConfigError, match="'past' does not learn: policies_to_train leaves it out"):
            algorithm.get_policy("past").learn_on_batch(samples)


def test_what_does_not_fit_leaves_all_as_it_was(tmp_path: Path) -> None:
    other = config().training(model={"fcnet_hiddens": [3]})
    with config().build() as algorithm, other.build() as another:
        with pytest.raises(ConfigError):
            algorithm.add_policy("odd", observation_space=gym.spaces.Box(0, 1, (99,)))
        with pytest.raises(ReefError):
            algorithm.add_policy("other", policy=another.get_policy("main"))
        noise = {"exploration_config": {"type": "ParameterNoise", "sub_exploration": {"type": "EpsilonGreedy"}}}
        with pytest.raises(ConfigError, match="'ParameterNoise': PPO weighs each action by how likely it was"):
            algorithm.add_policy("noisy", config=noise, policies_to_train=["main", "noisy"])
        assert list(algorithm.config.policies) == list(algorithm.workers.local_worker().policy_map) == ["main"]
        algorithm.train()
        with Algorithm.from_checkpoint(algorithm.save(tmp_path / "checkpoint")) as restored:
            assert list(restored.config.policies) == ["main"]


def test_what_cannot_be_added_is_refused() -> None:
    with config().build() as algorithm:
        with pytest.raises(ConfigError, match="there is a policy 'main' already"):
            algorithm.add_policy("main")
        with pytest.raises(ConfigError, match="'past': config.train_batch_size=3 has no effect for one policy"):
            algorithm.add_policy("past", config={"train_batch_size": 3})
        with pytest.raises(ConfigError, match="policy='main' is one of this algorithm's"):
            algorithm.add_policy("past", policy=algorithm.get_policy("main"), config={"lr": 1.0})
        with pytest.raises(ConfigError, match="policies_to_train: 'ghost' is not among"):
            algorithm.add_policy("past", policies_to_train=["ghost"])
        with pytest.raises(ConfigError, match="policies_to_train=.*nothing would learn"):
            algorithm.remove_policy("main")
        assert list(algorithm.config.policies) == ["main"]
        algorithm.train()
    fixed, message = config().multi_agent(policy_mapping_fn=lambda agent: "main"), "only where it is asked in each"
    with fixed.build() as algorithm, pytest.raises(ConfigError, match=message):
        algorithm.add_policy("past")
    apex = config(ApexDQNConfig).rollouts(num_rollout_workers=0).resources(num_gpus=0)
    with apex.build() as algorithm, pytest.raises(ConfigError, match="policies cannot change while APEX trains"):
        algorithm.add_policy("past")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": {"use_lstm": True}}, "model.use_lstm=True: not available yet with DQN where agents take turns"),
        ({"replay_mode": "lockstep"}, "replay_mode='lockstep': not available yet with DQN where agents take turns"),
    ],
)
def test_what_is_replayed_in_order_needs_agents_that_act_in_every_step(settings: dict[str, Any], message: str) -> None:
    made = config(DQNConfig, replay_buffer_config={"prioritized_replay": False})
    made.assign(settings).rollouts(rollout_fragment_length=4)
    with pytest.raises(ConfigError, match=message):
        made.build()


@pytest.mark.parametrize("steps", [1, 3])
def test_dqn_learns_where_agents_take_turns(steps: int) -> None:
    made = config(DQNConfig, num_steps_sampled_before_learning_starts=64, train_batch_size=32, lr=0.01, n_step=steps)
    made.training(gamma=0.0, target_network_update_freq=64).rollouts(rollout_fragment_length=8)
    made.exploration(exploration_config={"epsilon_timesteps": 500})
    with made.reporting(min_sample_timesteps_per_iteration=1500).build() as algorithm:
        algorithm.train()
        chosen = [
            algorithm.compute_single_action(np.array([bit], np.float32), policy_id="main", explore=False)
            for bit in (0, 1)
        ]
    assert chosen == [0, 1]


MEMORY = {"use_lstm": True, "lstm_cell_size": 8, "max_seq_len": 8}


@pytest.mark.parametrize(
    ("kind", "memory"),
    [(PPOConfig, {}), (PPOConfig, MEMORY), (A2CConfig, {}), (IMPALAConfig, MEMORY), (APPOConfig, {})],
)
def test_on_policy_algorithms_learn_where_agents_take_turns(kind: Any, memory: dict[str, Any]) -> None:
    made = config(kind).training(train_batch_size=128, lr=0.02, gamma=0.0, model=memory)
    made.rollouts(rollout_fragment_length=16).reporting(min_sample_timesteps_per_iteration=3000)
    with made.build() as algorithm:
        algorithm.train()
        result = algorithm.train()
    assert result["policy_reward_mean"]["main"] > 1.6, "2 is the most, 1 is chance"
