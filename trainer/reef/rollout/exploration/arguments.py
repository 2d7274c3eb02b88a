"""Checks of the arguments of explorations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reef.errors import ConfigError


def check(name: str, value: Any, low: float, high: float = float("inf")) -> None:
    """Raise ConfigError unless an argument is a number from `low` to `high`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        limits = f"at least {low}" if high == float("inf") else f"from {low} to {high}"
        raise ConfigError(f"exploration_config.{name}={value!r} must be a number, {limits}.")


def check_size(name: str, value: Any) -> None:
    """Raise ConfigError unless an argument is a whole number, 1 or more."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"exploration_config.{name}: {value!r} must be a whole number, 1 or more.")


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Raise ConfigError unless an argument is one of the `choices`."""
    if value not in choices:
        raise ConfigError(f"exploration_config.{name}={value!r} must be one of {', '.join(choices)}.")
