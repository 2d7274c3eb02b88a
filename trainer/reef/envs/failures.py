"""The words for an environment that raised, or returned what cannot be used."""

from __future__ import annotations

import traceback
from types import TracebackType

import gymnasium as gym

from reef.errors import EnvironmentError

RESULTS = {"reset": "(obs, info)", "step": "(obs, reward, terminated, truncated, info)"}


def env_name(env: object) -> str:
    """The name of the setting `env` in messages and result folders."""
    return env if isinstance(env, str) else str(getattr(env, "__name__", type(env).__name__))


def describe(name: str, call: str, where: str, error: Exception) -> str:
    """One sentence: which environment did what wrong, in which call and where."""
    what = "raised" if _own_frames(error) else "breaks the Gymnasium API"
    return f"environment {name!r} {what} in {call}() {where}: {type(error).__name__}: {error}"


def failure(
    name: str, call: str, where: str, error: Exception, fix: str = "Correct the environment."
) -> EnvironmentError:
    """The error to raise for it, with the environment's own traceback or what it should return."""
    if isinstance(error, gym.error.DependencyNotInstalled):
        return missing_package(name, error)
    expected = f" {call}() returns {RESULTS[call]}, with obs as observation_space says."
    return EnvironmentError(f"{describe(name, call, where, error)}\n{fix}{own_traceback(error) or expected}")


def missing_package(name: str, error: Exception) -> EnvironmentError:
    """The error to raise for Gymnasium's DependencyNotInstalled, which says what to install."""
    return EnvironmentError(f"environment {name!r} needs a package that is not installed: {error}")


def own_traceback(error: Exception) -> str:
    """The traceback from the environment's first line on, with words before it; "" where there is none."""
    frames = _own_frames(error)
    lines = traceback.format_exception(type(error), error, frames) if frames else []
    return " Its own traceback:\n" + "".join(lines).rstrip() if lines else ""


def _own_frames(error: Exception) -> TracebackType | None:
    """The frames that are not Reef's; None where Reef could not take what was returned."""
    frames = error.__traceback__
    while frames and frames.tb_frame.f_globals.get("__name__", "").startswith("reef."):
        frames = frames.tb_next
    return frames
