"""Spaces survive the way through JSON."""

import json

import numpy as np
import pytest
from gymnasium import spaces

from reef.config import AlgorithmConfig
from reef.config.spaces import space_from_dict, space_to_dict
from reef.config.values import plain
from reef.errors import ConfigError

SPACES = [
    spaces.Box(-1.0, 1.0, (3, 2), np.float32),
    spaces.Box(np.array([-np.inf, 0.0]), np.array([1.0, np.inf]), dtype=np.float64),
    spaces.Box(-np.inf, np.inf, (2,), np.float32),
    spaces.Box(0, 255, (4, 4, 3), np.uint8),
    spaces.Discrete(5, start=2),
    spaces.MultiDiscrete([2, 3]),
    spaces.MultiDiscrete([2, 3], start=[1, -1]),
    spaces.MultiBinary(4),
    spaces.Dict({"b": spaces.Discrete(2), "a": spaces.Tuple([spaces.Discrete(3), spaces.Box(0.0, 1.0, ())])}),
]


@pytest.mark.parametrize("space", SPACES, ids=lambda space: type(space).__name__)
def test_round_trip(space):
    assert space_from_dict(json.loads(json.dumps(space_to_dict(space)))) == space
    assert plain({"inside": space}) == {"inside": space_to_dict(space)}


def test_a_configuration_takes_a_space_or_its_plain_form():
    config = AlgorithmConfig().environment(observation_space=SPACES[1], action_space={"type": "Discrete", "n": 2})
    assert config.action_space == spaces.Discrete(2)
    again = AlgorithmConfig.from_dict(json.loads(json.dumps(config.to_dict())))
    assert again.observation_space == SPACES[1]
    assert again == config.validate()


def test_a_space_that_is_a_mapping_is_no_plain_form():
    assert AlgorithmConfig().environment(observation_space=SPACES[-1]).observation_space == SPACES[-1]


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ({"type": "box"}, "Did you mean 'Box'"),
        ({"type": "Discrete"}, "space"),
        ({"n": 2}, "expected one of Box"),
        ({"type": "Dict"}, "give 'spaces', a mapping of names to spaces"),
        ({"type": "Dict", "spaces": [1]}, "give 'spaces', a mapping of names to spaces"),
        ({"type": "Dict", "spaces": {"a": 1}}, "space 1: expected a mapping with the 'type'"),
        ({"type": "Tuple", "spaces": 2}, "give 'spaces', a list of spaces"),
        ({"type": "Discrete", "n": 10**30}, "space"),
        ({"type": "Discrete", "false": 2}, "kubectl reads the key n as false. Write it in quotes"),
    ],
)
def test_wrong_plain_forms_are_refused(plain, message):
    with pytest.raises(ConfigError, match=message):
        space_from_dict(plain)
