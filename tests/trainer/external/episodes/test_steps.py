"""The steps of one agent, and what it may be credited."""

from __future__ import annotations

import re

import numpy as np
import pytest
from applications import acted

from reef.errors import ExternalEpisodeError
from reef.external.episodes.steps import AgentSteps, check_reward


def test_rewards_are_added_to_the_last_action() -> None:
    steps = AgentSteps("p")
    steps.credit(9.0)  # before the first one
    for reward in (1.0, 2.0):
        steps.act(np.zeros(1), acted(inputs=np.zeros(2)))
        steps.credit(reward)
        steps.credit(0.5)
    assert steps.rewards == [1.5, 2.5]
    found = steps.take(np.ones(1))
    assert found.rewards.tolist() == [1.5, 2.5]
    assert found.dist_inputs.shape == (2, 2)
    assert steps.rewards == []


def test_what_is_cut_off_without_an_observation_loses_its_last_step() -> None:
    steps = AgentSteps("p")
    for t in range(3):
        steps.act(np.full(1, t), acted(t))
    found = steps.end(None, truncated=True)
    assert (found.obs[:, 0].tolist(), found.actions.tolist(), found.truncated) == ([0, 1, 2], [0, 1], True)
    steps.act(np.zeros(1), acted())
    assert steps.end(None, truncated=True) is None


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), 1e39, -1e39])
def test_a_reward_is_a_finite_float32(reward: float) -> None:
    with pytest.raises(ExternalEpisodeError, match=f"e: the reward is {re.escape(str(reward))}, .* expected a finite"):
        check_reward("e", reward, 0.0, has_acted=True)


def test_the_sum_of_the_rewards_of_a_step_is_a_finite_float32() -> None:
    check_reward("e", 3e38, 0.0, has_acted=True)
    with pytest.raises(ExternalEpisodeError, match="and 6e.38 with those before"):
        check_reward("e", 3e38, 3e38, has_acted=True)


def test_a_reward_needs_an_action_before_it() -> None:
    check_reward("e", 0.0, 0.0, has_acted=False)
    with pytest.raises(ExternalEpisodeError, match="a reward of 2 before the first action.*call get_action"):
        check_reward("e", 2.0, 0.0, has_acted=False)
