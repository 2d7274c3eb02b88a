import sys
import types

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control.pendulum import PendulumEnv

from reef.envs import EnvContext, make_env, make_vector_env
from reef.envs.native import CartPoleVector
from reef.errors import ConfigError, EnvironmentError


@pytest.fixture
def own_module(counter, monkeypatch):
    module = types.ModuleType("own_environments")
    module.Counter, module.number = counter, 3
    monkeypatch.setitem(sys.modules, "own_environments", module)


def test_a_registered_id_gets_env_config_as_keywords(settings):
    env = make_vector_env(settings("Pendulum-v1", {"g": 3.5}), 0, 2)
    assert [sub.unwrapped.g for sub in env.envs] == [3.5, 3.5]


@pytest.mark.parametrize("path", ["own_environments:Counter", "own_environments.Counter"])
def test_a_path_names_a_class(own_module, counter, settings, path):
    assert isinstance(make_vector_env(settings(path), 0, 1).envs[0], counter)


def test_classes_and_functions_get_the_context(counter, settings):
    config = settings(lambda context: counter(context), {"length": 5}, num_rollout_workers=3)
    env = make_vector_env(config, 2, 2, recreated=True)
    contexts = [sub.context for sub in env.envs]
    assert all(dict(context) == {"length": 5} and context["length"] == 5 for context in contexts)
    assert [(c.worker_index, c.vector_index, c.num_workers, c.remote, c.recreated_worker) for c in contexts] == [
        (2, 0, 3, False, True),
        (2, 1, 3, False, True),
    ]
    assert [context.num_rollout_workers for context in contexts] == [3, 3]


def test_a_class_without_positional_arguments_gets_keywords(counter, settings):
    def build(*, length):
        return counter(EnvContext({"length": length}))

    assert make_env(settings(build, {"length": 4}), EnvContext({"length": 4})).length == 4


def test_an_id_that_its_module_registers(settings, monkeypatch):
    gym.register("Registered-v0", entry_point="gymnasium.envs.classic_control.pendulum:PendulumEnv")
    monkeypatch.setitem(sys.modules, "registering", types.ModuleType("registering"))
    try:
        env = make_env(settings("registering:Registered-v0"), EnvContext({}))
    finally:
        del gym.registry["Registered-v0"]
    assert env.spec.id == "Registered-v0"


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ("CartPol-v1", r"env='CartPol-v1' is not registered with Gymnasium. Did you mean 'CartPole-v\d'"),
        ("no_such_module:Env", "no_such_module"),
        ("own_environments:Countr", "Did you mean 'Counter'"),
        ("own_environments:number", "expected a class or a function"),
        (17, "env=17 is no environment"),
        (None, "env=None is no environment"),
    ],
)
def test_a_name_that_leads_nowhere(own_module, settings, env, message):
    config = settings("CartPole-v1")
    config.env = env
    with pytest.raises(ConfigError, match=message):
        make_vector_env(config, 0, 1)


def test_a_missing_package_is_named_with_the_command(settings):
    def needs_box2d(context):
        raise gym.error.DependencyNotInstalled('Box2D is not installed, run `pip install "gymnasium[box2d]"`')

    with pytest.raises(EnvironmentError, match=r'package that is not installed.*pip install "gymnasium\[box2d\]"'):
        make_vector_env(settings(needs_box2d), 0, 1)


def test_a_package_that_the_first_reset_misses_is_named_likewise(counter, settings):
    class NeedsPygame(counter):
        def reset(self, **kwargs):
            raise gym.error.DependencyNotInstalled("pygame is not installed, run `pip install pygame`")

    with pytest.raises(EnvironmentError, match="^environment .NeedsPygame. needs a package .*: pygame is not"):
        make_vector_env(settings(NeedsPygame), 0, 1).reset()


def test_an_environment_that_cannot_be_made_shows_its_env_config(settings):
    with pytest.raises(
        EnvironmentError, match=r"(?s)'Pendulum-v1' cannot be made with env_config=\{'gg': 1\}: TypeError"
    ):
        make_vector_env(settings("Pendulum-v1", {"gg": 1}), 0, 1)


def test_the_check_runs_unless_switched_off(counter, settings):
    class Wrong(counter):
        def step(self, action):
            return np.full(2, np.nan), 0.0, False, False, {}

    with pytest.raises(EnvironmentError, match="NaN"):
        make_vector_env(settings(Wrong), 0, 1)
    make_vector_env(settings(Wrong, disable_env_checking=True), 0, 1).reset()


def test_what_the_check_refuses_is_closed(counter, settings):
    closed = []

    class Wrong(counter):
        def step(self, action):
            return np.full(2, np.nan), 0.0, False, False, {}

        def close(self):
            closed.append(self)
            raise OSError("its simulator has gone")

    with pytest.raises(EnvironmentError, match="NaN"):
        make_vector_env(settings(Wrong), 0, 1)
    assert len(closed) == 1


def test_spaces_may_be_made_by_the_first_reset(counter, settings):
    class Late(counter):
        observation_space = action_space = None

        def reset(self, **options):
            self.observation_space, self.action_space = counter.observation_space, counter.action_space
            return super().reset(**options)

    env = make_vector_env(settings(Late), 0, 2)
    assert (env.observation_space, env.action_space) == (counter.observation_space, counter.action_space)


@pytest.mark.parametrize("absent", [False, True])
def test_spaces_given_in_the_settings_stand_for_missing_ones(settings, absent):
    class Bare:
        if not absent:
            observation_space = action_space = None

        def __init__(self, env_config): ...

        def reset(self, *, seed=None, options=None):
            return np.zeros(2, np.float32), {}

        def step(self, action):
            return np.zeros(2, np.float32), 1.0, False, False, {}

    given = {"observation_space": gym.spaces.Box(0.0, 9.0, (2,)), "action_space": gym.spaces.Discrete(2)}
    for unchecked in (False, True):
        make_vector_env(settings(Bare, disable_env_checking=unchecked, **given), 0, 1).reset()
    with pytest.raises(EnvironmentError, match="action_space is missing.*give the setting action_space"):
        make_vector_env(settings(Bare, observation_space=given["observation_space"]), 0, 1)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"observation_space": gym.spaces.Box(0, 255, (4,), np.uint8)}, r"obs\[1\] is -0\.\d+, outside of \[0, 255\]"),
        ({"action_space": gym.spaces.Discrete(2, start=1)}, r"raised in step\(\) with action"),
    ],
)
def test_cartpole_is_not_trained_on_spaces_of_another_kind(settings, given, problem):
    with pytest.raises(EnvironmentError, match=problem):
        make_vector_env(settings("CartPole-v1", **given), 0, 2)


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_spaces_given_in_the_settings_that_do_not_fit_are_refused(settings, env):
    problem = r"(?s)obs has the shape \(\d,\), expected \(2,\) of Box.*or the setting observation_space"
    with pytest.raises(EnvironmentError, match=problem):
        make_vector_env(settings(env, observation_space=gym.spaces.Box(-100.0, 100.0, (2,))), 0, 2)


def test_bounds_of_a_space_given_in_the_settings_need_not_be_kept(counter, settings):
    class Far(counter):
        def reset(self, **options):
            super().reset(**options)
            return np.full(2, 50.0, np.float32), {}

    space = gym.spaces.Box(-1.0, 1.0, (2,))
    assert make_vector_env(settings(Far, observation_space=space), 0, 1).reset().max() == 50


def test_an_environment_with_its_own_spaces_in_the_settings_is_as_fast(settings):
    own = gym.make("CartPole-v1")
    env = make_vector_env(
        settings("CartPole-v1", observation_space=own.observation_space, action_space=own.action_space), 0, 2
    )
    assert isinstance(env, CartPoleVector)


def test_spaces_given_in_the_settings_replace_the_environments(counter, settings):
    space = gym.spaces.Box(0.0, 9.0, (2,), np.float32)
    env = make_vector_env(settings(counter, observation_space=space), 0, 2)
    assert env.observation_space is space and env.reset().dtype == np.float32


@pytest.mark.parametrize(("is_atari", "clipped"), [(None, True), (True, True), (False, False)])
def test_rewards_of_atari_games_are_clipped(settings, monkeypatch, is_atari, clipped):
    module = types.ModuleType("ale_py.env")
    module.Game = PendulumEnv
    monkeypatch.setitem(sys.modules, "ale_py.env", module)
    monkeypatch.setitem(gym.registry, "Game-v0", gym.envs.registration.EnvSpec("Game-v0", "ale_py.env:Game"))
    env = make_vector_env(settings("Game-v0", is_atari=is_atari), 0, 1)
    assert env.reward_transform.identity is not clipped


def test_rewards_of_other_environments_are_not_clipped(settings):
    assert make_vector_env(settings("Pendulum-v1"), 0, 1).reward_transform.identity
