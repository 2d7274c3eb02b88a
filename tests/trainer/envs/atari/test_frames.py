"""Frames of Atari games: what networks see of them, by hand-made games and by the real ones."""

from __future__ import annotations

import importlib.util

import gymnasium as gym
import numpy as np
import pytest
from games import FIRE, LEFT, NOOP, RIGHT, Game
from gymnasium import spaces

from reef.envs.atari.frames import LivesEnv, PixelEnv, check_frame_settings, shows_frames, wrap_deepmind
from reef.envs.context import EnvContext
from reef.envs.make import make_env, make_envs
from reef.errors import ConfigError, EnvironmentError


@pytest.fixture
def prepared(settings):
    """Make a game as the workers have it."""

    def make(game=None, *, model=None, **keys):
        config = settings(lambda context: Game(**context), game, **keys)
        config.model.assign(model or {})
        return make_env(config.checked(), EnvContext(config.env_config))

    return make


def test_frames_are_gray_small_and_stacked_and_show_the_last_two(prepared):
    env = prepared()
    assert env.observation_space == spaces.Box(0, 255, (4, 84, 84), np.uint8)
    obs, _ = env.reset(seed=3)
    assert obs.dtype == np.uint8
    first = env.unwrapped.frame
    for _ in range(5):
        obs, *_ = env.step(NOOP)
    for age, frame in enumerate(obs[::-1]):
        last = first + 4 * (5 - age)
        even, odd = (last, last - 1) if last % 2 == 0 else (last - 1, last)
        assert (frame[:, :42] == even).all()
        assert (frame[:, 42:] == odd).all()


def test_an_episode_begins_after_up_to_30_frames_without_an_action_and_with_fire(prepared):
    env = prepared()
    waited = []
    for seed in range(40):
        env.reset(seed=seed)
        *noops, one, two, three, four = env.unwrapped.actions
        assert [one, two, three, four] == [FIRE] * 4
        assert set(noops) == {NOOP}
        waited.append(len(noops))
    assert len(set(waited)) > 10
    assert min(waited) >= 1
    assert max(waited) <= 30


def test_fire_is_pressed_at_the_start_of_each_life(prepared):
    env = prepared()
    env.reset(seed=0)
    start = env.unwrapped.frame
    env.step(RIGHT)
    _, _, terminated, _, _ = env.step(LEFT)
    assert env.unwrapped.actions[start:] == [RIGHT] * 4 + [LEFT] * 4 + [FIRE] * 4
    assert env.life_lost
    assert not terminated
    _, reward, _, _, _ = env.step(RIGHT)
    assert reward == 8.0
    assert not env.life_lost
    env.step(LEFT)
    _, _, terminated, _, _ = env.step(LEFT)
    assert terminated, "no life is left"
    assert not env.life_lost
    assert env.unwrapped.actions[-1] == LEFT


def test_nothing_is_pressed_in_a_game_without_fire(prepared):
    env = prepared({"has_fire": False, "lives": 9})
    env.reset(seed=0)
    assert set(env.unwrapped.actions) == {NOOP}
    env.step(LEFT)
    assert env.life_lost
    assert env.unwrapped.actions[-1] == LEFT


@pytest.mark.parametrize(("frameskip", "repeated"), [(4, 4), (2, 2), (1, 4)])
def test_frames_are_never_skipped_twice(prepared, frameskip, repeated):
    env = prepared({"frameskip": frameskip})
    env.reset(seed=0)
    before = env.unwrapped.frame
    env.step(RIGHT)
    assert env.unwrapped.frame - before == repeated


def test_a_game_that_draws_the_number_of_frames_goes_on_doing_so(prepared):
    env = prepared({"frameskip": (2, 5)})
    env.reset(seed=0)
    ends = [env.unwrapped.frame]
    for _ in range(50):
        env.step(RIGHT)
        ends.append(env.unwrapped.frame)
    assert set(np.diff(ends)) == {2, 3, 4}


@pytest.mark.parametrize(
    ("model", "shape"), [({"dim": 42}, (4, 42, 42)), ({"framestack": False}, (84, 84)), ({}, (4, 84, 84))]
)
def test_dim_and_framestack(prepared, model, shape):
    env = prepared(model=model)
    assert env.observation_space.shape == env.reset(seed=0)[0].shape == shape


@pytest.mark.parametrize(
    ("model", "shape", "dtype", "values"),
    [
        ({}, (84, 84, 3), np.float32, (-124 / 128, -1.0)),
        ({"grayscale": True, "dim": 42}, (42, 42, 1), np.float32, (-124 / 128, -1.0)),
        ({"zero_mean": False}, (84, 84, 3), np.uint8, (4, 0)),
    ],
)
def test_rllib_makes_each_frame_small(prepared, model, shape, dtype, values):
    env = prepared(preprocessor_pref="rllib", model=model)
    env.reset(seed=0)
    obs, *_ = env.step(RIGHT)
    assert env.unwrapped.frame == 4, "neither waiting nor FIRE, and the game's own skipping"
    assert obs.shape == env.observation_space.shape == shape
    assert obs.dtype == env.observation_space.dtype == dtype
    assert (obs[0, 0, 0], obs[0, -1, 0]) == values


def test_without_a_preference_the_screen_is_observed(prepared):
    env = prepared(preprocessor_pref=None)
    assert env.reset(seed=0)[0].shape == (210, 160, 3)
    assert isinstance(env, Game)


@pytest.mark.parametrize("keys", [{"is_atari": False}, {"env_config": {"obs_type": "ram"}}])
def test_what_is_no_frame_is_not_prepared(settings, keys):
    game = keys.pop("env_config", {})
    config = settings(lambda context: Game(**context), game, **keys)
    assert isinstance(make_env(config, EnvContext(game)), Game)


def test_frames_that_others_prepared_are_left_alone(settings):
    config = settings(lambda context: wrap_deepmind(Game(), dim=50, framestack=False))
    env = make_env(config, EnvContext({}))
    assert not shows_frames(env)
    assert env.observation_space.shape == (50, 50)


@pytest.mark.parametrize(
    ("env", "keys", "model", "message"),
    [
        ("CartPole-v1", {}, {"dim": 42}, "model.dim=42: for Atari games whose screen is observed, and environment"),
        (lambda context: Game(obs_type="ram"), {}, {"framestack": False}, "model.framestack=False: for Atari games"),
        ("Pendulum-v1", {"preprocessor_pref": "rllib"}, {}, "preprocessor_pref='rllib': .*'Pendulum-v1' is none"),
        (
            lambda context: Game(),
            {"preprocessor_pref": "rllib", "is_atari": False},
            {"grayscale": True, "zero_mean": False},
            "preprocessor_pref='rllib', model.grayscale=True, model.zero_mean=False: .*prepares its frames itself",
        ),
    ],
)
def test_settings_of_frames_are_refused_where_none_are_prepared(settings, env, keys, model, message):
    config = settings(env, **keys)
    config.model.assign(model)
    with pytest.raises(ConfigError, match=message):
        make_envs(config.checked(), 0, 1)


@pytest.mark.parametrize("preference", ["deepmind", "rllib", None])
def test_they_are_taken_where_frames_are_prepared(settings, preference):
    config = settings(lambda context: Game(), preprocessor_pref=preference)
    if preference is not None:
        config.model.dim = 42
    envs = make_envs(config.checked(), 0, 1)
    kind = {"deepmind": LivesEnv, "rllib": PixelEnv, None: Game}[preference]
    assert isinstance(envs.envs[0], kind)
    check_frame_settings(config, envs.envs[0], "game")


def test_a_missing_opencv_is_named_with_the_command(settings, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", {"cv2": None}.get)
    with pytest.raises(EnvironmentError, match=r"need OpenCV, which is not installed: `pip install 'reef\[atari\]'`"):
        make_env(settings(lambda context: Game()), EnvContext({}))


def test_a_real_game(settings):
    """Breakout stands still until FIRE is pressed, and has 5 lives."""
    assert importlib.util.find_spec("ale_py"), "ale-py is part of the extra `dev`"
    config = settings("ALE/Breakout-v5", {"repeat_action_probability": 0.0})
    env = make_env(config.checked(), EnvContext(config.env_config))
    obs, _ = env.reset(seed=1)
    assert obs.shape == (4, 84, 84)
    assert isinstance(env, gym.Wrapper)
    begun = env.unwrapped.ale.getEpisodeFrameNumber()
    env.step(0)
    assert env.unwrapped.ale.getEpisodeFrameNumber() - begun == 4
    lost = 0
    for _ in range(400):
        obs, _, terminated, _, info = env.step(0)
        lost += env.life_lost
        if terminated:
            break
    assert (lost, info["lives"]) == (4, 0), "without FIRE the first ball would never fall"
    assert env.observation_space.contains(obs)
