"""Observations that a function makes of those of all agents: a critic that sees what its actor does not."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from reef.algorithms.ppo import PPOConfig
from reef.envs.agents.observing import ObservedAgents
from reef.envs.multi_agent import MultiAgentEnv
from reef.errors import ConfigError

SPACE = gym.spaces.Box(0, 1, (2,))


class Hidden(MultiAgentEnv):
    """Each agent sees a bit; both get 1 where agent 0 names its own and agent 1 does too."""

    possible_agents = (0, 1)

    def __init__(self, context: Any) -> None:
        self.observation_spaces = dict.fromkeys(self.possible_agents, gym.spaces.Box(0, 1, (1,)))
        self.action_spaces = dict.fromkeys(self.possible_agents, gym.spaces.Discrete(2))

    def seen(self) -> dict[Any, Any]:
        self.bits = {agent: int(self.random.integers(2)) for agent in self.possible_agents}
        return {agent: np.array([bit], np.float32) for agent, bit in self.bits.items()}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.random, self.steps = np.random.default_rng(seed), 0
        return self.seen(), {}

    def step(self, actions: dict[Any, Any]) -> Any:
        self.steps += 1
        reward = float(all(actions[agent] == bit for agent, bit in self.bits.items()))
        return self.seen(), dict.fromkeys(actions, reward), {"__all__": self.steps == 8}, {}, {}


def own_first(agent_obs: dict[Any, Any]) -> dict[Any, Any]:
    """What the agent sees, and after it what the other one sees."""
    return {agent: np.concatenate([own, agent_obs[1 - agent]]) for agent, own in agent_obs.items()}


class SharedCritic(nn.Module):
    """The actor reads the agent's own part of the observation, the critic all of it."""

    def __init__(self, observation_space: Any, action_space: Any, num_outputs: int) -> None:
        super().__init__()
        self.actor = nn.Linear(1, num_outputs)
        self.critic = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        return self.actor(obs[:, :1]), self.critic(obs).squeeze(-1)


def config() -> PPOConfig:
    made = PPOConfig().environment(Hidden).debugging(seed=1)
    made.multi_agent(policies={"both": {"observation_space": SPACE}}, observation_fn=own_first)
    made.training(model={"custom_model": SharedCritic}, lr=0.03, gamma=0.0)
    return made.training(train_batch_size=256, sgd_minibatch_size=128, num_sgd_iter=4)


def test_a_critic_sees_all_and_an_actor_its_own() -> None:
    with config().build() as algorithm:
        for _ in range(15):
            result = algorithm.train()
        policy = algorithm.get_policy("both")
        own = [algorithm.compute_single_action(np.array([bit, 0.5]), policy_id="both", explore=False) for bit in (0, 1)]
        assert own == [0, 1]
        one, other = (policy.dist_inputs(torch.tensor([[1.0, bit]])) for bit in (0.0, 1.0))
        torch.testing.assert_close(one, other)
        values = policy.values(torch.tensor([[1.0, 0.0], [1.0, 1.0]]))
        assert values[0] != values[1]
        assert result["episode_reward_mean"] > 8, "16 is the most, 4 is chance"


def test_policies_with_other_spaces_need_a_mapping_that_stays() -> None:
    wide = gym.spaces.Box(0, 1, (3,))
    made = config().multi_agent(
        policies={"one": {"observation_space": SPACE}, "two": {"observation_space": wide}},
        policy_mapping_fn=lambda agent, episode: "one",
    )
    with pytest.raises(ConfigError, match="observation_fn: policy_mapping_fn is asked in each episode"):
        ObservedAgents(Hidden({}), made, "Hidden")
    made.multi_agent(policies={"one": {"observation_space": SPACE}, "two": None})
    assert ObservedAgents(Hidden({}), made, "Hidden").observation_spaces == {0: SPACE, 1: SPACE}
