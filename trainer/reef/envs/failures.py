"""The words for an environment that raised, or returned what cannot be used."""

from __future__ import annotations

import gymnasium as gym

from reef.errors import EnvironmentError, LostProcessError, own_traceback

RESULTS = {"reset": "(obs, info)", "step": "(obs, reward, terminated, truncated, info)"}


def env_name(env: object) -> str:
    """The name of the setting `env` in messages and result folders."""
    if env is None:  # applications bring theirs
        return "external"
    return env if isinstance(env, str) else str(getattr(env, "__name__", type(env).__name__))


def describe(name: str, call: str, where: str, error: Exception) -> str:
    """One sentence: which environment did what wrong, in which call and where."""
    if isinstance(error, EnvironmentError):
        return str(error)
    what = "raised" if own_traceback(error) else "breaks the Gymnasium API"
    return f"environment {name!r} {what} in {call}() {where}: {type(error).__name__}: {error}"


def failure(
    name: str,
    call: str,
    where: str,
    error: Exception,
    fix: str = "Correct the environment.",
    expected: str = "",
) -> EnvironmentError:
    """The error to raise for it, with the environment's own traceback or what it should return (`expected`).

    An EnvironmentError, which a wrapper of ours raises, is raised as it is: it says where already.
    """
    if isinstance(error, LostProcessError):
        return LostProcessError(f"{error} {fix}")
    if isinstance(error, EnvironmentError):
        raise error
    if isinstance(error, gym.error.DependencyNotInstalled):
        return missing_package(name, error)
    returns = f" {call}() returns {expected or RESULTS[call]}, with obs as observation_space says."
    return EnvironmentError(f"{describe(name, call, where, error)}\n{fix}{own_traceback(error) or returns}")


def missing_package(name: str, error: Exception) -> EnvironmentError:
    """The error to raise for Gymnasium's DependencyNotInstalled, which says what to install."""
    return EnvironmentError(f"environment {name!r} needs a package that is not installed: {error}")
