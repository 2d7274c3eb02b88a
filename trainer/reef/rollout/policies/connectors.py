"""Functions of the user's between environments and policy: on observations, and on actions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import numpy as np
from gymnasium import spaces

from reef.callbacks.hooks import guarded
from reef.config import AlgorithmConfig
from reef.config.loading import load_function
from reef.errors import CallbackError, ConfigError
from reef.models.preprocessors import Preprocessor
from reef.nn.queries.policy import Transform
from reef.spaces import Layout, Space
from reef.types import Array

TO_POLICY, TO_ENV = "env_to_module_connector", "module_to_env_connector"


class ObservationConnector:
    """Calls the function `env_to_module_connector` with observations, one row for each column.

    The function is tried with a row of sampled values: `space` is that of what it returns.
    """

    def __init__(self, function: Callable[..., Any], observations: Space) -> None:
        """`observations`: the environment's space. Raises CallbackError for what no policy can observe."""
        self._function, self._layout = function, Layout.of(observations)
        self.preprocessor = Preprocessor(observations)
        values = deepcopy(observations)  # whose random numbers are the environment's
        values.seed(0)
        sampled = self._layout.flatten(values.sample())[None]
        self.space = _space_of(self._called(sampled), observations)
        self._returned, self._changed = Preprocessor(self.space), Layout.of(self.space)
        self(sampled)

    def __call__(self, obs: Array, present: Array | None = None) -> Array:
        """[B, *obs] of the environment -> [B, *obs] of the policy; CallbackError for another result.

        It is called with the rows that are `present` [B] alone, None: all; the others become zeros.
        """
        if present is not None and not present.all():
            rows = np.zeros((len(obs), *self._changed.shape), self._changed.dtype)
            if present.any():
                rows[present] = self(obs[present])
            return rows
        found = self._called(obs)
        try:
            rows = self._returned.observations(found)
            if len(rows) != len(obs):
                raise ConfigError(f"it returned {len(rows)} rows for {len(obs)} observations.")
            return rows
        except ConfigError as error:
            source = "" if np.isfinite(obs).all() else " It was called with such values: look at the environment."
            raise CallbackError(f"{TO_POLICY} returned what is no batch of {self.space}: {error}{source}") from error

    def _called(self, obs: Array) -> Any:
        """What the function returns for a copy of the observations, which it may write to."""
        return guarded(TO_POLICY, self._function, self._layout.unflatten(obs.copy()))


class ActionConnector:
    """Calls the function `module_to_env_connector` with actions as the policy chose them, one row for each column."""

    def __init__(self, function: Callable[..., Any], actions: Space) -> None:
        self._function, self._layout = function, Layout.of(actions)

    def __call__(self, actions: Array) -> Array:
        """[B, *action] -> [B, *action]; CallbackError for another result."""
        found = guarded(TO_ENV, self._function, actions.copy())
        try:
            changed = np.asarray(found)
        except (TypeError, ValueError):  # rows of several lengths
            changed = np.empty(0)
        is_numeric = changed.dtype.kind in "biuf"
        if not is_numeric or changed.shape != actions.shape or not np.isfinite(changed).all():
            raise CallbackError(
                f"{TO_ENV} returned {found!r} for actions of the shape {actions.shape}: expected finite numbers of the "
                "same shape, a row for each."
            )
        if wrong := self._layout.first_impossible(changed):
            where, value, possible = wrong
            raise CallbackError(f"{TO_ENV} returned {value} at index {where}, expected {possible}.")
        return changed.astype(actions.dtype)


class ConnectedTransform:
    """An action connector, and after it what brings actions into their bounds."""

    def __init__(self, connector: ActionConnector, transform: Transform) -> None:
        self._connector, self._transform = connector, transform

    def __call__(self, actions: Array) -> Array:
        """[N, *action] as the policy chose them -> as the environment takes them."""
        return self._transform(self._connector(actions))

    def inverse(self, actions: Array) -> Array:
        """Raises ConfigError: which action the policy chose cannot be known."""
        raise ConfigError(
            f"prev_action has no meaning with {TO_ENV}: what the policy had chosen cannot be known from the action in "
            "the environment. Leave it out: the state that the call before returned holds what was chosen."
        )


def observation_connector(config: AlgorithmConfig, observations: Space) -> ObservationConnector | None:
    """That of these settings, which are of one policy, and this space of the environment; None without one."""
    if config.env_to_module_connector is None:
        return None
    return ObservationConnector(load_function(config.env_to_module_connector, TO_POLICY, "observations"), observations)


def action_connector(config: AlgorithmConfig, actions: Space) -> ActionConnector | None:
    """That of these settings, which are of one policy; None without one."""
    if config.module_to_env_connector is None:
        return None
    return ActionConnector(load_function(config.module_to_env_connector, TO_ENV, "actions"), actions)


def observed_space(config: AlgorithmConfig, observations: Space) -> Space:
    """The space of what a policy with these settings observes in an environment."""
    connector = observation_connector(config, observations)
    return observations if connector is None else connector.space


def _space_of(found: Any, own: Space | None) -> Space:
    """The space of one row of `found`, a batch of one; `own` is that of the same part before the function."""
    parts = getattr(own, "spaces", {})
    if isinstance(found, Mapping):
        inner = parts if isinstance(parts, Mapping) else {}
        return spaces.Dict({key: _space_of(value, inner.get(key)) for key, value in found.items()})
    if isinstance(found, tuple):
        inner = dict(enumerate(parts)) if isinstance(parts, tuple) else {}
        return spaces.Tuple([_space_of(value, inner.get(index)) for index, value in enumerate(found)])
    values = np.asarray(found)
    if values.ndim < 1 or len(values) != 1 or not (np.issubdtype(values.dtype, np.number) or values.dtype == np.bool_):
        raise CallbackError(
            f"{TO_POLICY} returned {found!r} for a single observation: expected an array of numbers whose first axis "
            "has a row for each, or a dict or tuple of such arrays."
        )
    shape, integer = values.shape[1:], not np.issubdtype(values.dtype, np.floating)
    if own is not None and not isinstance(own, spaces.Box) and integer and shape == own.shape:
        return own
    if values.dtype == np.uint8:
        return spaces.Box(0, 255, shape, np.uint8)
    return spaces.Box(-np.inf, np.inf, shape, np.float32 if integer else values.dtype.type)
