"""The frames of Atari games as networks learn from them, and the lives of their players."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

from reef.config import AlgorithmConfig
from reef.config.ignored import given_for_frames
from reef.errors import ConfigError
from reef.models.preprocessors import GenericPixelPreprocessor, require_opencv
from reef.types import Array

Env = gym.Env[Any, Any]

NOOP_MAX = 30  # an episode begins after 1 to this many frames without an action
ACTION_REPEAT = 4  # frames of an action, where the game itself repeats none
STACK = 4  # frames in an observation


def prepared_frames(config: AlgorithmConfig, env: Env) -> Env:
    """The game `env` as `preprocessor_pref` wants it; itself where it is no game, or others have wrapped its frames."""
    if config.preprocessor_pref is None or config.is_atari is False or not shows_frames(env):
        return env
    require_opencv()
    if config.preprocessor_pref == "rllib":
        return PixelEnv(env, config)
    return wrap_deepmind(env, dim=config.model.dim, framestack=config.model.framestack)


def shows_frames(env: Any) -> bool:
    """Whether `env` is a game of ale-py with buttons, which observes the whole screen as the game draws it."""
    game: Any = getattr(env, "unwrapped", None)
    observed = getattr(env, "observation_space", None)
    if not (hasattr(game, "ale") and isinstance(observed, spaces.Box) and len(observed.shape) > 1):
        return False
    return observed == game.observation_space and isinstance(env.action_space, spaces.Discrete)


def wrap_deepmind(env: Env, dim: int = 84, framestack: bool = True) -> LivesEnv:
    """A game as Mnih et al. (2015) prepare it, which observes gray frames uint8 [4, dim, dim], the newest one last.

    An episode begins after up to 30 frames without an action. An action is repeated for as many frames as the game
    would do, or for 4 if it repeats none; the last two frames are put over each other. A game that draws the number of
    frames goes on doing that. Without `framestack` an observation is one frame [dim, dim].
    """
    game: Any = env.unwrapped
    repeat = 1
    if isinstance(game._frameskip, int):
        repeat = game._frameskip if game._frameskip > 1 else ACTION_REPEAT
        game._frameskip = 1  # or frames would be skipped twice
    env = AtariPreprocessing(env, noop_max=NOOP_MAX, frame_skip=repeat, screen_size=dim)
    return LivesEnv(FrameStackObservation(env, STACK) if framestack else env)


class LivesEnv(gym.Wrapper[Any, Any, Any, Any]):
    """A game in which FIRE is pressed for the player at the start of an episode and of each further life.

    Some games wait for it. An episode lasts until all lives are lost; `life_lost` says whether the last step took one
    of several.
    """

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        game: Any = env.unwrapped
        self._game, meanings = game, game.get_action_meanings()
        self._fire = meanings.index("FIRE") if "FIRE" in meanings else None
        self._lives = 0
        self.life_lost = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        obs, info = self.env.reset(seed=seed, options=options)
        if self._fire is not None:
            obs, _, terminated, truncated, info = self.env.step(self._fire)
            if terminated or truncated:
                obs, info = self.env.reset(options=options)
        self._lives, self.life_lost = self._game.ale.lives(), False
        return obs, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Repeat `action` for some frames; the rewards of frames in which FIRE is pressed count too."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        lost = not (terminated or truncated) and self._lost()
        if lost and self._fire is not None:
            obs, more, terminated, truncated, info = self.env.step(self._fire)
            reward = float(reward) + float(more)
            self._lost()
        self.life_lost = lost and not (terminated or truncated)
        return obs, float(reward), terminated, truncated, info

    def _lost(self) -> bool:
        before, self._lives = self._lives, self._game.ale.lives()
        return 0 < self._lives < before  # some games show 0 lives for a while before they are over


class PixelEnv(gym.ObservationWrapper[Any, Any, Any]):
    """A game whose frames are cut and made smaller one by one; nothing else of it changes."""

    def __init__(self, env: Env, config: AlgorithmConfig) -> None:
        super().__init__(env)
        model = config.model
        options = {"dim": model.dim, "grayscale": model.grayscale, "zero_mean": model.zero_mean}
        self._preprocessor = GenericPixelPreprocessor(env.observation_space, options)
        low, high, dtype = (-1.0, 1.0, np.float32) if model.zero_mean else (0, 255, np.uint8)
        self.observation_space = spaces.Box(low, high, self._preprocessor.shape, dtype)

    def observation(self, observation: Array) -> Array:
        """A frame of the screen -> [dim, dim, channels]."""
        return self._preprocessor.transform(observation)


def check_frame_settings(config: AlgorithmConfig, env: Any, name: str) -> None:
    """Raise ConfigError where settings of frames were given, and those of `env` were not prepared."""
    if isinstance(env, LivesEnv | PixelEnv) or config.preprocessor_pref is None:
        return
    model = config.model
    asked = [f"model.{key}={getattr(model, key)!r}" for key in given_for_frames(model)]
    if config.preprocessor_pref == "rllib":
        asked.insert(0, "preprocessor_pref='rllib'")
    if asked:
        raise ConfigError(
            f"{', '.join(asked)}: for Atari games whose screen is observed, and environment {name!r} is none, or "
            "prepares its frames itself. Leave it out."
        )
