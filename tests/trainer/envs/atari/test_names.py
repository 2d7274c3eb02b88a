"""Names of environments that Gymnasium knows, and those of Atari games."""

from __future__ import annotations

import sys
import types

import gymnasium as gym
import pytest
from games import Game

from reef.envs.atari import names
from reef.envs.atari.names import arguments, atari_hint, is_atari, registered
from reef.envs.context import EnvContext
from reef.envs.make import make_env
from reef.errors import ConfigError


@pytest.mark.parametrize("name", ["ALE/Pong-v5", "ale_py:ALE/Pong-v5", "PongNoFrameskip-v4", "Pong-v0"])
def test_names_of_games_are_known_without_an_import(monkeypatch, settings, name):
    for known in [spec.id for spec in gym.registry.values() if str(spec.entry_point).startswith("ale_py")]:
        monkeypatch.delitem(gym.registry, known)
    monkeypatch.delitem(sys.modules, "ale_py", raising=False)
    assert registered(name).id == name.rpartition(":")[2]
    assert is_atari(settings(name))


@pytest.mark.parametrize("env", ["Nothing-v7", "nothing:Nothing-v7", "nothing:CartPole-v1", "math:pi", 17, None, Game])
def test_other_values_are_not_registered(env):
    assert registered(env) is None


@pytest.mark.parametrize(("given", "known"), [(None, True), (True, True), (False, False)])
def test_a_game_is_known_by_itself_unless_the_settings_say_otherwise(settings, given, known):
    config = settings(Game, is_atari=given)
    assert is_atari(config, Game()) is known
    assert is_atari(config) is (given is True)


def test_a_document_gives_a_pair_as_a_list():
    assert arguments({"frameskip": [2, 5], "mode": 1}) == {"frameskip": (2, 5), "mode": 1}
    assert arguments({"frameskip": 4, "list": [1]}) == {"frameskip": 4, "list": [1]}


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ("PongDeterministic-v4", r"{'frameskip': 4, 'repeat_action_probability': 0.0}"),
        ("SpaceInvadersDeterministic-v0", r"{'frameskip': 3, 'repeat_action_probability': 0.25}"),
        ("Pong-ram-v4", r"{'frameskip': [2, 5], 'repeat_action_probability': 0.0, 'obs_type': 'ram'}"),
        ("BreakoutNoFrameskip-v4", "use 'BreakoutNoFrameskip-v4'."),
        ("ALE/Pong-v5", "use 'ALE/Pong-v5'."),
    ],
)
def test_without_ale_py_the_message_says_what_to_install(monkeypatch, settings, env, expected):
    monkeypatch.setattr(names, "PACKAGE", "no_such_package")
    monkeypatch.setattr(gym, "registry", {})
    with pytest.raises(ConfigError) as refusal:
        make_env(settings(env), EnvContext({}))
    assert "It is an Atari game: `pip install 'reef[atari]'`, and use " in str(refusal.value)
    assert expected in str(refusal.value)


@pytest.mark.parametrize(
    ("env", "hint"),
    [
        (
            "PongDeterministic-v4",
            "use 'ALE/Pong-v5' with env_config={'frameskip': 4, 'repeat_action_probability': 0.0}.",
        ),
        ("ALE/Pung-v5", "Did you mean 'ALE/Pong-v5'?"),
        ("CartPol-v1", ""),
    ],
)
def test_with_ale_py_it_says_what_to_write(env, hint):
    registered("ALE/Pong-v5")
    found = atari_hint(env)
    assert found.endswith(hint)
    assert "pip" not in found


def test_what_the_message_says_works(settings):
    config = settings("ALE/Pong-v5", {"frameskip": [2, 5], "repeat_action_probability": 0.0, "obs_type": "ram"})
    assert make_env(config, EnvContext(config.env_config)).observation_space.shape == (128,)


def test_a_module_may_register_the_name(monkeypatch):
    gym.register("Another-v0", entry_point="gymnasium.envs.classic_control.pendulum:PendulumEnv")
    monkeypatch.setitem(sys.modules, "registering", types.ModuleType("registering"))
    try:
        assert registered("registering:Another-v0").id == "Another-v0"
    finally:
        del gym.registry["Another-v0"]
