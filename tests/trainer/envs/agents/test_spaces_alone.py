"""Spaces where there is no environment."""

from __future__ import annotations

import numpy as np
import pytest
from applications import OBSERVATIONS, settings
from gymnasium import spaces

from reef.envs.agents.spaces_alone import SpacesAlone

BOX = spaces.Box(0.0, 4.0, (1,), np.float32)


def test_a_policy_has_its_own_spaces_or_those_of_all() -> None:
    own = {"action_space": BOX, "config": {"clip_rewards": 1.0, "normalize_actions": False}}
    columns = SpacesAlone(settings(policies={"a": own, "b": {"action_space": BOX}}).checked()).columns
    assert {*columns} == {"a", "b"}
    assert (columns["a"].observation_space, columns["a"].action_space) == (OBSERVATIONS, BOX)
    assert columns["a"].reward_transform(np.array([5.0])).tolist() == [1.0]
    assert columns["b"].reward_transform(np.array([5.0])).tolist() == [5.0]
    assert columns["a"].action_transform(np.zeros((1, 1), np.float32)).tolist() == [[0.0]]
    assert columns["b"].action_transform(np.zeros((1, 1), np.float32)).tolist() == [[2.0]]


def test_nothing_can_be_stepped() -> None:
    envs = SpacesAlone(settings().checked())
    for call in (envs.reset, lambda: envs.step({})):
        with pytest.raises(NotImplementedError, match="there is no environment"):
            call()
    assert (envs.state(), envs.roles(0)) == ({}, {})
    assert envs.set_state({})[1].tolist() == [False]
    envs.close()
