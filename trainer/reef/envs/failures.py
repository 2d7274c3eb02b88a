"""The words for an environment that raised."""

from __future__ import annotations

import traceback

from reef.errors import EnvironmentError


def describe(name: str, call: str, where: str, error: Exception) -> str:
    """One sentence: which environment raised what, in which call and where."""
    return f"environment {name!r} raised in {call}() {where}: {type(error).__name__}: {error}"


def failure(
    name: str, call: str, where: str, error: Exception, fix: str = "Correct the environment."
) -> EnvironmentError:
    """The error to raise for it, with the environment's own traceback."""
    own = "".join(traceback.format_exception(error))
    return EnvironmentError(f"{describe(name, call, where, error)}\n{fix} Its own traceback:\n{own}")
