import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from reef.envs.check import check_env
from reef.envs.vector import check_choices, check_finite
from reef.errors import EnvironmentError
from reef.spaces import Layout


class Fine(gym.Env):
    observation_space = spaces.Dict({"x": spaces.Box(-1.0, 1.0, (2,)), "n": spaces.Discrete(3)})
    action_space = spaces.Discrete(2)

    def obs(self):
        return {"x": np.zeros(2), "n": 1}  # float64 for a float32 box: converted, not refused

    def reset(self, *, seed=None, options=None):
        return self.obs(), {}

    def step(self, action):
        return self.obs(), 1, False, np.False_, {}


def broken(**members):
    return type("Broken", (Fine,), members)()


def stepping(**changes):
    """An environment whose step returns something else in one place."""
    values = {"obs": {"x": np.zeros(2), "n": 1}, "reward": 1.0, "terminated": False, "truncated": False, "info": {}}
    return broken(step=lambda self, action: tuple((values | changes).values()))


def observing(obs):
    return broken(obs=lambda self: obs)


def test_a_correct_environment_passes():
    check_env(Fine(), "Fine")
    check_env(gym.make("Pendulum-v1"), "Pendulum-v1")


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (broken(observation_space=None), "observation_space is missing: set self.observation_space"),
        (broken(action_space=4), "action_space is a builtins.int, not a gymnasium.spaces.Space"),
        (broken(action_space=spaces.Text(3)), "action_space: space is Text"),
        (broken(observation_space=spaces.Box(0, 1, (2, 0))), "observation_space is Box.* whose values hold nothing"),
        (broken(reset=lambda self, *, seed=None: np.zeros(2)), r"reset\(\) returned .* expected \(obs, info\)"),
        (broken(step=lambda self, action: (0, 1.0, False, {})), r"step\(\) returned .* expected 5 values .*terminated"),
        (observing(np.zeros(2)), r"obs has array.* expected a dict with the keys \['n', 'x'\]"),
        (observing({"x": np.zeros(2)}), r"obs has \['x'\], expected a dict with the keys"),
        (observing({"x": np.zeros(3), "n": 1}), r"obs\['x'\] has the shape \(3,\), expected \(2,\)"),
        (observing({"x": [0.0, np.nan], "n": 1}), r"obs\['x'\] has NaN"),
        (observing({"x": [0.0, 1.5], "n": 1}), r"obs\['x'\]\[1\] is 1.5, outside of \[-1.0, 1.0\]"),
        (observing({"x": np.zeros(2), "n": 1.5}), r"obs\['n'\] has the dtype float64, expected int64 of Discrete"),
        (observing({"x": ["a", "b"], "n": 1}), r"obs\['x'\] is \['a', 'b'\] \(list\), expected numbers"),
        (observing({"x": [[0.0], [0.0, 1.0]], "n": 1}), r"obs\['x'\] is .* expected numbers"),
        (observing({"x": np.zeros(2), "n": 3}), r"obs\['n'\] is 3 \(int\), which Discrete\(3\) does not contain"),
        (stepping(obs=None), r"step\(\): obs has None"),
        (stepping(reward="much"), "reward is 'much'"),
        (stepping(reward=np.zeros(1)), r"reward is array.* return float\(reward\)"),
        (stepping(reward=np.inf), "reward is inf"),
        (stepping(terminated=0), r"terminated is 0 \(int\), expected True or False"),
        (stepping(truncated=None), "truncated is None"),
        (stepping(info=None), "info is None"),
    ],
)
def test_what_breaks_the_api_is_named(env, message):
    with pytest.raises(EnvironmentError, match=message) as caught:
        check_env(env, "mine")
    assert "environment 'mine' breaks the Gymnasium API" in str(caught.value)


def test_all_problems_of_a_step_are_told_together():
    with pytest.raises(EnvironmentError) as caught:
        check_env(stepping(reward=None, terminated=1, info=3), "mine")
    assert all(word in str(caught.value) for word in ("reward", "terminated", "info"))


@pytest.mark.parametrize("call", ["reset", "step"])
def test_an_exception_keeps_its_traceback(call):
    def crash(self, *args, **kwargs):
        raise KeyError("lost")

    with pytest.raises(EnvironmentError, match=rf"(?s)raised in {call}\(\).*KeyError: 'lost'.*in crash"):
        check_env(broken(**{call: crash}), "mine")


def test_values_that_are_not_finite_are_named():
    values = np.zeros((5, 2, 3), np.float32)
    check_finite("observations", values, "mine")
    check_finite("observations", np.zeros(3, np.int64), "mine")
    values[3, 1, 2] = np.nan
    with pytest.raises(EnvironmentError, match=r"'mine' returned observations with nan at index \[3, 1, 2\]"):
        check_finite("observations", values, "mine")
    with pytest.raises(EnvironmentError, match="with -inf at index"):
        check_finite("rewards", np.array([0.0, -np.inf]), "mine")


def test_indices_that_a_space_has_not_are_named():
    space = spaces.Dict(
        {"a": spaces.Box(-1.0, 1.0, (2,)), "b": spaces.MultiDiscrete([2, 3]), "c": spaces.MultiBinary(1)}
    )
    layout = Layout.of(space)
    values = np.zeros((4, 2, 5), np.float32)
    values[..., 3], values[..., 4], values[..., 0] = 2, 1, 9
    check_choices("observations", values, layout, "mine")
    for element, value, expected in ((2, 2, "0 to 1"), (3, -1, "0 to 2"), (4, 2, "0 to 1")):
        wrong = values.copy()
        wrong[3, 1, element] = value
        message = (
            rf"'mine' returned observations with {value} at index \[3, 1, {element}\].*expected {expected} of Multi"
        )
        with pytest.raises(EnvironmentError, match=message):
            check_choices("observations", wrong, layout, "mine")
