"""What a worker writes while it steps, and the rollout that is made of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from reef.algorithms.dqn import DQNConfig
from reef.algorithms.ppo import PPOConfig
from reef.config import AlgorithmConfig
from reef.envs.by_policy import Columns
from reef.envs.vector import StepResult
from reef.rollout.policy_runner import PolicyRunner

COLUMNS = 2


def runner(steps: int, config: AlgorithmConfig | None = None) -> PolicyRunner:
    """One whose fragment begins, with observations of 0."""
    untouched: Any = None
    spaces_ = spaces.Box(-9.0, 9.0, (1,)), spaces.Discrete(3)
    made = PolicyRunner(config or PPOConfig(), 0, Columns(*spaces_, untouched, untouched, np.arange(COLUMNS)))
    made.begin(steps, np.zeros((COLUMNS, 1), np.float32))
    return made


def record(one: PolicyRunner, t: int, live: list[bool] | None = None) -> None:
    """Step `t`, with observations and rewards t + 1, and actions and inputs of t."""
    number = np.full((COLUMNS, 1), t + 1, np.float32)
    flags = np.zeros(COLUMNS, np.bool_)
    one.fragment.actions[t] = t % 3
    if one.fragment.dist_inputs is not None:
        one.fragment.dist_inputs[t] = [t, 0, 0]
    alive = None if live is None else np.array(live)
    one.record(t, StepResult(number, number[:, 0], flags, flags, {}, alive, number[:, 0]), None)


def test_the_next_observation_is_that_of_the_step_after() -> None:
    one = runner(3)
    for t in range(3):
        record(one, t)
    rollout = one.fragment.rollout(3, policy_version=5)
    assert rollout.obs[:, 0, 0].tolist() == [0, 1, 2]
    assert rollout.next_obs[:, 0, 0].tolist() == [1, 2, 3]
    assert (rollout.policy_version, rollout.mask.all()) == (5, True)


def test_where_an_episode_ended_it_is_the_true_successor() -> None:
    one = runner(2)
    for t in range(2):
        record(one, t)
    one.fragment.finals.append((0, 1, np.array([7.0], np.float32)))
    rollout = one.fragment.rollout(2, 0)
    assert rollout.next_obs[:, :, 0].tolist() == [[1, 7], [2, 2]]
    assert rollout.obs[1, 1, 0] == 1  # the first of the next episode


def test_a_dead_step_is_masked() -> None:
    one = runner(1)
    record(one, 0, live=[True, False])
    assert one.fragment.rollout(1, 0).mask.tolist() == [[True, False]]


def test_more_room_keeps_what_is_written() -> None:
    one = runner(2)
    for t in range(2):
        record(one, t)
    one.fragment.grow()
    assert one.fragment.capacity == 4
    for t in range(2, 4):
        record(one, t)
    rollout = one.fragment.rollout(3, 0)
    assert rollout.rewards[:, 0].tolist() == [1, 2, 3]
    assert rollout.obs[:, 0, 0].tolist() == [0, 1, 2]


def test_log_likelihoods_are_those_of_the_actions() -> None:
    one = runner(2)
    for t in range(2):
        record(one, t)
    rollout = one.fragment.rollout(2, 0)
    expected = torch.log_softmax(torch.tensor([[0.0, 0, 0], [1, 0, 0]]), -1)[[0, 1], [0, 1]]
    np.testing.assert_allclose(rollout.extras["action_logp"][:, 0], expected.numpy(), rtol=1e-6)
    assert runner(2, DQNConfig()).fragment.rollout(2, 0).extras == {}


def recorded(config: AlgorithmConfig, timesteps: list[int], grow_after: int = 99) -> tuple[Any, Any]:
    """Recorded log-likelihoods [T, B] of steps at these timesteps of the run, and those by the policy."""
    one = runner(2, config)
    flags = np.zeros(COLUMNS, np.bool_)
    for t, timestep in enumerate(timesteps):
        if t == grow_after:
            one.fragment.grow()
        one.act(t, timestep)
        obs = np.full((COLUMNS, 1), t + 1, np.float32)
        one.record(t, StepResult(obs, obs[:, 0], flags, flags, {}, None, obs[:, 0]), None)
    extras = one.fragment.rollout(len(timesteps), 0).extras
    log_probs = torch.log_softmax(torch.from_numpy(extras["action_dist_inputs"]), -1)
    taken = torch.from_numpy(one.fragment.actions[: len(timesteps)])
    return extras["action_logp"], log_probs.gather(-1, taken[..., None])[..., 0].numpy()


def test_the_likelihood_of_an_action_is_that_of_its_exploration_in_its_step() -> None:
    config = PPOConfig().training(model={"fcnet_hiddens": [4]}).debugging(seed=0)
    config.exploration(exploration_config={"random_timesteps": 5})
    found, by_policy = recorded(config, [0, 4, 5], grow_after=2)
    np.testing.assert_allclose(found[:2], np.log(1 / 3), rtol=1e-6)
    np.testing.assert_array_equal(found[2], by_policy[2])
    assert abs(by_policy[2] - np.log(1 / 3)).min() > 1e-5
    config.exploration(explore=False)
    np.testing.assert_array_equal(*recorded(config, [0, 0]))


def test_where_only_the_policy_draws_no_likelihood_is_written_in_a_step() -> None:
    assert runner(2).fragment.logp is None
    assert runner(2, DQNConfig()).fragment.logp is None
