import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from reef.envs import make_vector_env
from reef.envs.old_api import OldApiEnv, gymnasium_space, speaks_old_api
from reef.errors import EnvironmentError


class Old:
    """As of Gym 0.21: no base class needed, `seed` a method."""

    observation_space, action_space = spaces.Box(0.0, 99.0, (1,)), spaces.Discrete(2)
    colour = "red"

    def __init__(self, env_config):
        self.limit = env_config.get("limit", False)
        self.seeds = []

    def seed(self, seed):
        self.seeds.append(seed)

    def reset(self):
        self.steps = 0
        return np.zeros(1, np.float32)

    def step(self, action):
        self.steps += 1
        done = self.steps == 2
        return (
            np.full(1, self.steps, np.float32),
            1.0,
            done,
            {"TimeLimit.truncated": True} if self.limit and done else {},
        )


class Middle(Old):
    """As of Gym 0.25: `reset` takes a seed but returns the observation alone."""

    def reset(self, *, seed=None, return_info=False):
        self.seeds.append(seed)
        return super().reset()


class New(gym.Env):
    observation_space, action_space = Old.observation_space, Old.action_space

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 1.0, False, False, {}


@pytest.mark.parametrize(("limit", "expected"), [(False, (True, False)), (True, (False, True))])
@pytest.mark.parametrize("env_class", [Old, Middle])
def test_old_environments_are_wrapped_and_that_is_said(settings, env_class, limit, expected):
    with pytest.warns(UserWarning, match="old Gym API and wrapped"):
        env = make_vector_env(settings(env_class, {"limit": limit}), 0, 2)
    env.reset([11, 12])
    assert [sub.seeds[-1] for sub in env.envs] == [11, 12]
    env.step(np.zeros(2, np.int64))
    result = env.step(np.zeros(2, np.int64))
    assert (result.terminated[0], result.truncated[0]) == expected
    assert result.final_obs[0].tolist() == [2.0]
    assert env.envs[0].colour == "red"
    env.close()


def test_they_are_refused_with_the_steps_to_take(settings):
    with pytest.raises(EnvironmentError, match=r"(?s)old Gym API.*return \(obs, info\).*auto_wrap_old_gym_envs=True"):
        make_vector_env(settings(Old, auto_wrap_old_gym_envs=False), 0, 1)


def test_one_without_spaces_is_told_so(settings):
    class Bare:
        def __init__(self, env_config): ...

        def reset(self):
            return 0

        def step(self, action):
            return 0, 0.0, True, {}

    with pytest.raises(EnvironmentError, match=r"(?s)observation_space is missing.*action_space is missing"):
        make_vector_env(settings(Bare), 0, 1)


def test_without_trying_out_the_signature_tells():
    assert speaks_old_api(Old({}), try_out=False)
    assert not speaks_old_api(Middle({}), try_out=False)
    assert speaks_old_api(Middle({}), try_out=True)
    assert not speaks_old_api(New(), try_out=True)


def test_only_the_missing_half_is_translated():
    env = OldApiEnv(New())
    assert env.reset(seed=1)[1] == {}
    assert len(env.step(0)) == 5


class OldSpace:
    """As those of the package gym: no relation of Gymnasium's, though they look like them."""

    def __init__(self, **attributes):
        vars(self).update(attributes)

    def sample(self):
        return 0


def old_box(low, high, shape, dtype=np.float32):
    low, high = np.full(shape, low, dtype), np.full(shape, high, dtype)
    return OldSpace(low=low, high=high, shape=shape, dtype=np.dtype(dtype))


OLD_SPACES = [
    (old_box(0.0, 99.0, (1,)), spaces.Box(0.0, 99.0, (1,))),
    (old_box(0, 255, (8, 8, 3), np.uint8), spaces.Box(0, 255, (8, 8, 3), np.uint8)),
    (OldSpace(n=3, shape=(), dtype=np.dtype(int)), spaces.Discrete(3)),
    (OldSpace(n=3, start=2, shape=()), spaces.Discrete(3, start=2)),
    (OldSpace(nvec=np.array([2, 3]), shape=(2,)), spaces.MultiDiscrete([2, 3])),
    (OldSpace(n=4, shape=(4,)), spaces.MultiBinary(4)),
    (OldSpace(n=(2, 2), shape=(2, 2)), spaces.MultiBinary((2, 2))),
]


@pytest.mark.parametrize(("old", "new"), OLD_SPACES, ids=lambda space: str(space) if hasattr(space, "seed") else "")
def test_spaces_of_the_old_package_become_gymnasiums(old, new):
    converted = gymnasium_space(old)
    assert converted == new and converted.dtype == new.dtype
    nested = gymnasium_space(OldSpace(spaces={"a": old, "b": OldSpace(spaces=[old, old])}, shape=None))
    assert nested == spaces.Dict({"a": new, "b": spaces.Tuple([new, new])})
    assert gymnasium_space(new) is new


def test_what_looks_like_no_space_is_left_to_the_check():
    assert gymnasium_space("a space") == "a space"
    assert gymnasium_space(None) is None


@pytest.mark.parametrize("base", [Old, New])
def test_environments_with_spaces_of_the_old_package_are_wrapped(settings, base):
    class OldSpaces(base):
        observation_space, action_space = OLD_SPACES[0][0], OldSpace(n=2, shape=())

        def __init__(self, context):
            if base is Old:
                super().__init__(context)

    with pytest.warns(UserWarning, match="old Gym API and wrapped"):
        env = make_vector_env(settings(OldSpaces), 0, 2)
    assert env.observation_space == Old.observation_space and env.action_space == Old.action_space
    env.reset()
    env.step(np.zeros(2, np.int64))
