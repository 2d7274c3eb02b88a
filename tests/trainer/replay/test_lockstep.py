"""Steps of all agents are replayed together, also those in which some agents are absent."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from reef.algorithms.dqn import DQNConfig
from reef.batch import Rollout, Sample
from reef.envs.multi_agent import MultiAgentEnv
from reef.replay.lockstep import as_rows, together
from reef.replay.memory import ReplayMemory
from reef.replay.settings import ReplayBufferConfig


def rollout(mask: list[list[int]]) -> Rollout:
    """Rewards count the values [T, B]."""
    acted = np.array(mask, np.bool_)
    number = np.arange(acted.size, dtype=np.float32).reshape(acted.shape)
    none = np.zeros(acted.shape, np.bool_)
    return Rollout(number[..., None], number, number, number[..., None] + 1, none, none, acted)


def memory() -> ReplayMemory:
    settings = ReplayBufferConfig(capacity=64, prioritized_replay=False)
    return ReplayMemory(settings, gamma=0.9, seed=0, lockstep_envs=1)


def test_steps_in_which_any_agent_acted_are_kept_and_rows_are_of_those_that_did() -> None:
    # two environments, each with one agent of "one" and two of "two"
    rollouts = {
        "one": rollout([[1, 1], [0, 1], [0, 0]]),
        "two": rollout([[1, 1, 0, 0], [0, 1, 0, 0], [1, 0, 0, 0]]),
    }
    found = together(rollouts, {"one": 0.5, "two": 0.25}.__getitem__, 2)
    assert [steps.rewards.shape for steps in found.values()] == [(5, 1), (5, 2)], "in the last step of one nobody acted"
    rows = {name: as_rows(steps) for name, steps in found.items()}
    assert rows["one"].rewards.tolist() == [0, 1, 3]
    assert rows["two"].rewards.tolist() == [0, 1, 5, 8]
    assert rows["two"].next_obs[:, 0].tolist() == [1, 2, 6, 9]
    assert rows["two"].extras["discounts"].tolist() == [0.25] * 4


def test_agents_that_are_never_there_together_are_replayed() -> None:
    remembered = memory()
    remembered.add(Sample({"first": rollout([[0]]), "then": rollout([[0]])}, [], 0, 0))
    assert (len(remembered), remembered.sample(3)) == (0, {})
    remembered.add(Sample({"first": rollout([[1], [0]]), "then": rollout([[0], [1]])}, [], 2, 2))
    batches = remembered.sample(20)
    assert len(batches["first"]) + len(batches["then"]) == 20
    assert (set(batches["first"].rewards), set(batches["then"].rewards)) == ({0.0}, {1.0})


class Leaves(MultiAgentEnv):
    """Agent "short" leaves after 5 steps, "long" after 10."""

    possible_agents = ("short", "long")

    def __init__(self, config: Any) -> None:
        self.observation_spaces = dict.fromkeys(self.possible_agents, gym.spaces.Box(0, 10, (1,)))
        self.action_spaces = dict.fromkeys(self.possible_agents, gym.spaces.Discrete(2))

    def seen(self, agents: Any) -> dict[Any, Any]:
        return {agent: np.array([self.steps], np.float32) for agent in agents}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.steps = 0
        return self.seen(self.possible_agents), {}

    def step(self, actions: dict[Any, Any]) -> Any:
        self.steps += 1
        ended = {agent: self.steps == (5 if agent == "short" else 10) for agent in actions}
        return self.seen(actions), dict.fromkeys(actions, 1.0), ended, {}, {}


def test_an_agent_learns_its_end_after_others_have_left() -> None:
    config = DQNConfig().environment(Leaves).debugging(seed=1).training(model={"fcnet_hiddens": [4]}, hiddens=[4])
    config.multi_agent(policies=["short", "long"], replay_mode="lockstep").rollouts(rollout_fragment_length=4)
    config.training(replay_buffer_config={"prioritized_replay": False}, num_steps_sampled_before_learning_starts=0)
    # in draws of a single step "short" is often absent
    config.training(train_batch_size=1, training_intensity=1.0).reporting(min_sample_timesteps_per_iteration=40)
    with config.build() as algorithm:
        result = algorithm.train()
        assert (result["num_env_steps_sampled"], result["num_env_steps_trained"]) == (40, 40)
        assert 40 < result["num_agent_steps_trained"] < 80
        assert result["info"]["learner"].keys() == {"short", "long"}
        batch = algorithm.memory.sample(200)["long"]  # type: ignore[attr-defined]
        assert len(batch) == 200
        assert batch.terminated.any() and (batch.next_obs[batch.terminated] == 10).all()
