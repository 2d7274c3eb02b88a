"""Several agents in one environment: who is there, when an episode ends, and what each of their policies gets.

It tests reef.envs.by_policy and reef.envs.agents.envs too.
"""

from __future__ import annotations

import re
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from reef.algorithms.ppo import PPOConfig
from reef.envs.agents.envs import MultiAgentEnvs
from reef.envs.make import make_envs
from reef.envs.multi_agent import IndependentAgents, MultiAgentEnv
from reef.errors import ConfigError, EnvironmentError
from reef.rollout.worker import RolloutWorker


class Relay(MultiAgentEnv):
    """Agent "a" lives 2 steps, "b" 4, and "c" comes with the second step and lives to the end; each step is worth 1.

    The observation is [step of the episode, which agent].
    """

    possible_agents = ("a", "b", "c")
    lives = {"a": (0, 2), "b": (0, 4), "c": (1, 4)}  # noqa: RUF012

    def __init__(self, context: Any) -> None:
        self.config = dict(context)
        box, choice = gym.spaces.Box(-1, 9, (2,)), gym.spaces.Discrete(2)
        self.observation_spaces = dict.fromkeys(self.possible_agents, box)
        self.action_spaces = dict.fromkeys(self.possible_agents, choice)
        if self.config.get("odd"):
            self.action_spaces["c"] = gym.spaces.Discrete(3)

    def seen(self, last: bool = False) -> dict[Any, Any]:
        alive = {agent for agent, (first, end) in self.lives.items() if first <= self.steps < end + last}
        return {agent: np.array([self.steps, "abc".index(agent)], np.float32) for agent in sorted(alive)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.steps = 0
        return self.seen(), {}

    def step(self, actions: dict[Any, Any]) -> Any:
        assert actions.keys() == self.seen().keys(), "exactly those that are there act"
        acting = sorted(actions)
        self.steps += 1
        ended = {agent: self.lives[agent][1] == self.steps for agent in acting}
        terminated = {agent: over and agent != "b" for agent, over in ended.items()}
        truncated = {agent: over and agent == "b" for agent, over in ended.items()}
        obs = self.seen(last=True)
        if self.config.get("silent") and self.steps == 1:
            del obs["b"]
        rewards = dict.fromkeys(acting, 1.0)
        if self.config.get("late") and self.steps == 3:
            rewards["a"] = 5.0
        return obs, rewards, terminated, truncated, {}


def config(**settings: Any) -> PPOConfig:
    made = PPOConfig().environment(Relay, env_config=settings.pop("env_config", {})).debugging(seed=1)
    made = made.multi_agent(policies=["one", "two"], policy_mapping_fn=lambda agent: "one" if agent == "b" else "two")
    return made.rollouts(num_envs_per_worker=2, rollout_fragment_length=6, **settings).training(
        model={"fcnet_hiddens": [4]}
    )


def test_every_policy_gets_the_steps_of_its_agents() -> None:
    worker = RolloutWorker(config().freeze())
    assert worker.runners.keys() == {"one", "two"}
    sample = worker.sample()
    one, two = sample.rollouts["one"], sample.rollouts["two"]
    assert sample.env_steps == 12
    assert one.shape == (6, 2), "agent b in two environments"
    assert two.shape == (6, 4), "agents a and c in two environments"
    assert one.mask.all()
    assert one.truncated[:, 0].tolist() == [False, False, False, True, False, False]
    assert two.mask[:, 0].tolist() == [True, True, False, False, True, True], "a, which ends after two steps"
    assert two.mask[:, 1].tolist() == [False, True, True, True, False, True], "c, which comes later"
    assert two.terminated[:, 0].tolist() == [False, True, False, False, False, True]
    assert two.terminated[:, 1].tolist() == [False, False, False, True, False, False]
    assert two.obs[two.mask[:, 1], 1].tolist() == [[1, 2], [2, 2], [3, 2], [1, 2]]
    assert two.next_obs[[1, 5], 0].tolist() == [[2, 0], [2, 0]], "the last observation of the one that ended"
    assert one.next_obs[3, 0].tolist() == [4, 1], "not the first one of the next episode"
    assert [(e.reward, e.length, e.policy_rewards) for e in sample.episodes] == [(9.0, 4, {"one": 4.0, "two": 2.5})] * 2


def test_whole_episodes_have_the_steps_of_all_their_agents() -> None:
    sample = RolloutWorker(config(batch_mode="complete_episodes").freeze()).sample()
    assert sample.env_steps == 16, "two episodes of 4 steps in each environment"
    assert {name: len(rollout) for name, rollout in sample.rollouts.items()} == {"one": 16, "two": 20}


def test_evaluation_runs_as_many_episodes_as_asked_for() -> None:
    sample = RolloutWorker(config().freeze()).sample_episodes(3)
    assert [episode.length for episode in sample.episodes] == [4, 4, 4]


def test_a_restored_worker_goes_on_in_the_same_episodes() -> None:
    one, two = RolloutWorker(config().freeze()), RolloutWorker(config().debugging(seed=7).freeze())
    one.sample()  # two steps into the second episodes
    two.set_weights(one.get_weights())
    two.set_state(one.state())
    first, second = one.sample(), two.sample()
    for name, rollout in first.rollouts.items():
        np.testing.assert_array_equal(rollout.actions[rollout.mask], second.rollouts[name].actions[rollout.mask])
        np.testing.assert_array_equal(rollout.mask, second.rollouts[name].mask)
    assert [e.policy_rewards for e in first.episodes] == [e.policy_rewards for e in second.episodes]


def test_filters_count_the_agents_that_are_there() -> None:
    worker = RolloutWorker(config(observation_filter="MeanStdFilter").freeze())
    worker.sample()
    counts = {name: observed.state()["stat"]["count"] for name, observed in worker.filters.items()}
    # b: one for each step and the first; a: the first two of each episode; c: three of the first, two of the next
    assert counts == {"one": 14, "two": 2 * (2 + 3 + 2 + 1 + 1)}


class Plain(MultiAgentEnv):
    """Two agents that never end; `env_config` says what else a step answers after 3 steps. Rewards are 5."""

    possible_agents = (0, 1)

    def __init__(self, context: Any) -> None:
        self.config = dict(context)
        self.observation_spaces = dict.fromkeys(self.possible_agents, gym.spaces.Box(0, 99, (1,)))
        self.action_spaces = dict.fromkeys(self.possible_agents, gym.spaces.Box(-2, 2, (1,)))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.steps = 0
        return dict.fromkeys(self.possible_agents, np.zeros(1, np.float32)), {}

    def step(self, actions: dict[Any, Any]) -> Any:
        self.steps += 1
        obs = dict.fromkeys(self.possible_agents, np.full(1, self.steps, np.float32))
        terminated, truncated = ({}, {}) if self.steps < 3 else ({}, dict(self.config.get("truncated", {})))
        if self.steps >= 3 and self.config.get("dead"):
            terminated = {1: True}  # and goes on being listed
        if self.steps >= 3 and self.config.get("blind"):
            truncated = {1: True}
            del obs[1]
        return obs, dict.fromkeys(actions, 5.0), terminated, truncated, {}


def plain(length: int = 6, **settings: Any) -> PPOConfig:
    made = PPOConfig().environment(Plain, env_config=settings.pop("env_config", {}), **settings)
    return made.rollouts(rollout_fragment_length=length).training(model={"fcnet_hiddens": [4]}).debugging(seed=1)


def test_a_horizon_cuts_the_episode_of_all() -> None:
    sample = RolloutWorker(plain(horizon=4).freeze()).sample()
    rollout = sample.rollouts["default_policy"]
    assert rollout.truncated[:, 0].tolist() == rollout.truncated[:, 1].tolist() == [False] * 3 + [True] + [False] * 2
    assert not rollout.terminated.any()
    assert [episode.length for episode in sample.episodes] == [4]
    assert rollout.next_obs[3, 0, 0] == 4


def test_all_may_be_truncated_at_once() -> None:
    rollout = (
        RolloutWorker(plain(env_config={"truncated": {"__all__": True}}).freeze()).sample().rollouts["default_policy"]
    )
    assert rollout.truncated[:, 0].tolist() == [False, False, True] * 2
    assert not rollout.terminated.any()


def test_rewards_are_clipped_for_training_and_reported_as_they_are() -> None:
    sample = RolloutWorker(plain(horizon=3, clip_rewards=True).freeze()).sample()
    assert set(sample.rollouts["default_policy"].rewards.ravel().tolist()) == {1.0}
    assert sample.episodes[0].reward == 30.0


def test_an_agent_that_has_ended_stays_away_though_it_is_listed() -> None:
    rollout = RolloutWorker(plain(env_config={"dead": True}).freeze()).sample().rollouts["default_policy"]
    assert rollout.mask[:, 1].tolist() == [True] * 3 + [False] * 3
    assert rollout.terminated[:, 1].tolist() == [False, False, True, False, False, False]
    assert rollout.mask[:, 0].all()


def test_an_agent_that_is_cut_off_needs_a_last_observation() -> None:
    with pytest.raises(EnvironmentError, match="agent 1 goes on without an observation.*last observation"):
        RolloutWorker(plain(env_config={"blind": True}).freeze()).sample()


def test_the_action_that_was_taken_before_is_read_as_the_policy_chose_it() -> None:
    model = {"use_lstm": True, "lstm_cell_size": 4, "lstm_use_prev_action": True, "lstm_use_prev_reward": True}
    settings = plain(32, clip_rewards=True).training(model=model, train_batch_size=32, sgd_minibatch_size=32)
    with settings.build() as algorithm:
        obs = np.zeros(1, np.float32)
        action, state, _ = algorithm.compute_single_action(obs, full_fetch=True, explore=False)  # within the bounds
        with_own = algorithm.compute_single_action(obs, state, prev_reward=7.0, explore=False)[2]
        given = algorithm.compute_single_action(obs, state, prev_action=action, prev_reward=1.0, explore=False)[2]
        np.testing.assert_allclose(given["action_dist_inputs"], with_own["action_dist_inputs"], rtol=1e-5)


@pytest.mark.parametrize("key", ["soft_horizon", "no_done_at_end"])
def test_settings_for_one_agent_are_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}: not available with an environment of several agents"):
        RolloutWorker(plain(**{key: True}).freeze())


def test_a_policy_that_no_agent_acts_with_is_refused() -> None:
    with pytest.raises(ConfigError, match="no agent acts with 'ghost'"):
        RolloutWorker(plain().multi_agent(policies=["both", "ghost"], policy_mapping_fn=lambda a: "both").freeze())


def test_numbers_name_policies_too() -> None:
    assert [plain().multi_agent(policies=["0", "1"]).policy_of(agent) for agent in (0, 1)] == ["0", "1"]


@pytest.mark.parametrize(
    ("env_config", "message"),
    [
        ({"silent": True}, "agent 'b' goes on without an observation"),
        ({"late": True}, r"agent 'a' got the reward 5.0 while it was not there"),
    ],
)
def test_what_is_not_available_is_refused(env_config: dict[str, Any], message: str) -> None:
    with pytest.raises(EnvironmentError, match=message):
        RolloutWorker(config(env_config=env_config).freeze()).sample()


def test_agents_of_one_policy_have_the_same_spaces() -> None:
    with pytest.raises(ConfigError, match=r"'a' and 'c' the same policy 'two'.*Discrete\(2\).*Discrete\(3\)"):
        RolloutWorker(config(env_config={"odd": True}).freeze())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"policies": ["one"], "policy_mapping_fn": {"a": "one", "b": "other"}},
            "PolicyID 'other', which agent 'b' acts with, not found in PolicyMap",
        ),
        (
            {"policies": ["one"], "policy_mapping_fn": {"a": "one"}},
            r"there is no policy for agent 'b'. Give the agent one of policies=\['one'\]",
        ),
        ({"policies": ["one"], "policy_mapping_fn": "nowhere:fn"}, "there is no module 'nowhere'"),
    ],
)
def test_a_mapping_that_leads_nowhere_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RolloutWorker(PPOConfig().environment(Relay).multi_agent(**settings).freeze())


@pytest.mark.parametrize("wrong", [{"num_agents": 0}, {"num_agents": "2"}, {"env": None}])
def test_independent_agents_need_an_environment_and_a_number(wrong: dict[str, Any]) -> None:
    config = PPOConfig().environment(IndependentAgents, env_config={"env": "CartPole-v1", "num_agents": 2} | wrong)
    with pytest.raises(ConfigError, match="expected env, the name of an environment, and num_agents, at least 1"):
        RolloutWorker(config.freeze())


def test_a_misspelt_environment_of_independent_agents_is_named_with_the_near_match() -> None:
    config = PPOConfig().environment(IndependentAgents, env_config={"env": "CartPol-v1"})
    expected = "env_config.env='CartPol-v1' is not registered with Gymnasium. Did you mean 'CartPole-v1'?"
    with pytest.raises(ConfigError, match=f"^{re.escape(expected)}$"):
        RolloutWorker(config.freeze())


def test_an_error_that_ends_with_a_full_stop_gets_no_second_one() -> None:
    def broken(env_config: dict[str, Any]) -> Any:
        raise ValueError("it is broken.")

    with pytest.raises(EnvironmentError, match=r"ValueError: it is broken\. Its own traceback"):
        RolloutWorker(PPOConfig().environment(broken).freeze())


def test_policies_to_train_are_policies() -> None:
    wrong = PPOConfig().environment(Relay).multi_agent(policies=["one"], policies_to_train=["other"])
    with pytest.raises(ConfigError, match="policies_to_train: 'other' is not among"):
        wrong.validate()


def test_one_agent_has_no_policies() -> None:
    with pytest.raises(ConfigError, match="has one agent"):
        RolloutWorker(PPOConfig().environment("CartPole-v1").multi_agent(policies=["a", "b"]).freeze())


def test_without_a_mapping_an_agent_acts_with_the_policy_of_its_name_or_the_first() -> None:
    settings = PPOConfig().environment(Relay).multi_agent(policies=["first", "b"])
    assert [settings.policy_of(agent) for agent in ("a", "b", "c")] == ["first", "b", "first"]


def test_several_environments_of_one_agent_become_one() -> None:
    env_config = {"env": "CartPole-v1", "num_agents": 3}
    settings = PPOConfig().environment(IndependentAgents, env_config=env_config).rollouts(rollout_fragment_length=200)
    envs = make_envs(settings.freeze(), 0, 1)
    assert isinstance(envs, MultiAgentEnvs)
    sample = RolloutWorker(settings.copy().debugging(seed=2).freeze()).sample()
    rollout = sample.rollouts["default_policy"]
    assert rollout.shape == (200, 3)
    assert not rollout.mask.all(), "they end apart, and wait for the last one"
    assert sum(episode.reward for episode in sample.episodes) <= rollout.mask.sum()
