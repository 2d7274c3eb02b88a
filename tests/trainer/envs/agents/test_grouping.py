"""Groups of agents that act as one."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from reef.algorithms.ppo import PPOConfig
from reef.envs.multi_agent import IndependentAgents, MultiAgentEnv
from reef.errors import ConfigError, EnvironmentError
from reef.rollout.worker import RolloutWorker


class Team(MultiAgentEnv):
    """Agents 0, 1 and 2 for four steps; each gets its action as reward. `env_config`: which of them ends early."""

    possible_agents = (0, 1, 2)

    def __init__(self, context: Any) -> None:
        self.early = context.get("early")
        self.observation_spaces = {agent: gym.spaces.Box(0, 9, (1 + agent,)) for agent in self.possible_agents}
        self.action_spaces = dict.fromkeys(self.possible_agents, gym.spaces.Discrete(2))

    def seen(self) -> dict[Any, Any]:
        return {agent: np.full(1 + agent, self.steps, np.float32) for agent in self.possible_agents}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.steps = 0
        return self.seen(), {}

    def step(self, actions: dict[Any, Any]) -> Any:
        self.steps += 1
        ended = {self.early: self.steps == 2, "__all__": self.steps == 4}
        return self.seen(), {agent: float(action) for agent, action in actions.items()}, ended, {}, {}


def grouped(env_config: Any) -> MultiAgentEnv:
    return Team(env_config).with_agent_groups({"pair": [0, 1]})


def config(**env_config: Any) -> PPOConfig:
    made = PPOConfig().environment(grouped, env_config=env_config).debugging(seed=1)
    made.multi_agent(policies=["pair", "2"]).training(model={"fcnet_hiddens": [4]}, train_batch_size=40)
    return made.training(sgd_minibatch_size=20, num_sgd_iter=1)


def test_a_group_observes_acts_and_is_rewarded_as_one() -> None:
    sample = RolloutWorker(config().freeze()).sample(4)
    pair, alone = sample.rollouts["pair"], sample.rollouts["2"]
    assert pair.obs.shape[2:] == (3,), "of both"
    assert alone.obs.shape[2:] == (3,), "its own"
    np.testing.assert_array_equal(pair.rewards, pair.actions.sum(axis=-1))
    assert pair.terminated[:, 0].tolist() == [False, False, False, True]


def test_a_group_learns() -> None:
    with config().training(lr=0.02).build() as algorithm:
        for _ in range(12):
            result = algorithm.train()
    assert result["policy_reward_mean"]["pair"] > 6, "8 is the most, 4 is chance"


def test_a_group_ends_together() -> None:
    with pytest.raises(EnvironmentError, match=r"of the group 'pair' only \[1\] end: its agents end together"):
        RolloutWorker(config(early=1).freeze()).sample(8)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"pair": [0, 7]}, "there is no agent 7"),
        ({"pair": [0, 1], "other": [1]}, "agent 1 is in two places"),
        ({2: [0, 1]}, "2 is an agent too"),
    ],
)
def test_wrong_groups_are_refused(groups: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=f"with_agent_groups: {message}"):
        Team({}).with_agent_groups(groups)


def test_agents_that_come_and_go_alone_cannot_be_a_group() -> None:
    def poles(env_config: Any) -> MultiAgentEnv:
        return IndependentAgents({"env": "CartPole-v1"}).with_agent_groups({"both": [0, 1]})

    with pytest.raises(EnvironmentError, match="of the group 'both' only"):
        RolloutWorker(PPOConfig().environment(poles).training(model={"fcnet_hiddens": [4]}).freeze()).sample(200)


def test_agents_in_turns_are_no_group() -> None:
    team = Team({})
    team.agents_take_turns = True
    with pytest.raises(ConfigError, match="agents that take turns cannot act as one"):
        team.with_agent_groups({"pair": [0, 1]})
