"""Fragments that a client acted by itself, as they are sent and as they are checked."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from reef.batch import Episode
from reef.errors import ConfigError
from reef.external.acting import PolicyOfApplications
from reef.external.episodes.episode import RecordedSteps
from reef.external.wire import Fragment
from reef.nn.policies import Policy
from reef.types import DEFAULT_POLICY, Array, RecurrentState


def as_message(steps: RecordedSteps) -> Fragment:
    """Recorded steps as they are sent."""
    done = steps.episode
    return Fragment(
        obs=steps.obs,
        actions=steps.actions,
        rewards=steps.rewards,
        dist_inputs=steps.dist_inputs,
        terminated=steps.terminated,
        truncated=steps.truncated,
        version=steps.version,
        state_in=steps.state_in or None,
        episode_reward=done.reward if done else 0.0,
        episode_length=done.length if done else 0,
    )


def checked_fragment(sent: Fragment, policy: PolicyOfApplications) -> RecordedSteps:
    """The steps that a client sent; ConfigError where they are none of this policy."""
    acting = policy.runner.policy
    obs, actions = acting.observation_layout, acting.action_layout
    steps = len(sent.rewards) if isinstance(sent.rewards, np.ndarray) and sent.rewards.ndim == 1 else 0
    if not steps:
        raise ConfigError("fragment: rewards: expected an array [T] of at least one step.")
    if sent.terminated and sent.truncated:
        raise ConfigError("fragment: terminated and truncated: an episode ends in one way.")
    if policy.records_inputs:
        shape = steps, acting.dist_class.num_inputs
        inputs = _checked("dist_inputs", sent.dist_inputs, shape, np.dtype(np.float32))
    elif sent.dist_inputs is not None:
        raise ConfigError("fragment: dist_inputs: this policy records none. Send null.")
    found = RecordedSteps(
        obs=_checked("obs", sent.obs, (steps + 1, *obs.shape), obs.dtype),
        actions=_checked("actions", sent.actions, (steps, *actions.shape), actions.action_dtype),
        rewards=_checked("rewards", sent.rewards, (steps,), np.dtype(np.float32)),
        dist_inputs=inputs if policy.records_inputs else None,
        terminated=sent.terminated,
        truncated=sent.truncated,
        version=sent.version,
        state_in=_checked_memory(sent.state_in, acting),
        episode=_episode(sent, steps),
    )
    if not policy.may_cut and (found.episode is None or found.episode.length != steps):
        raise ConfigError("fragment: a part of an episode, but use_critic=False learns from whole ones. Send it whole.")
    for name, layout, values in (("obs", obs, found.obs), ("actions", actions, found.actions)):
        if impossible := layout.first_impossible(values):
            raise ConfigError(f"fragment: {name} has {impossible[1]}, expected {impossible[2]}.")
    policy.check_mask(found.obs[:-1], found.actions)
    return found


def _checked_memory(sent: Any, policy: Policy) -> RecurrentState:
    """A memory [1, ...] each, of the policy's names and shapes; empty where it has none."""
    expected = policy.initial_state(1)
    given = {} if sent is None else sent
    if not isinstance(given, dict) or given.keys() != expected.keys():
        names = f"a map of {', '.join(expected)}" if expected else "null: this policy has no memory"
        raise ConfigError(f"fragment: state_in: expected {names}.")
    return {
        name: _checked(f"state_in: {name}", given[name], values.shape, values.dtype)
        for name, values in expected.items()
    }


def _checked(name: str, values: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    if not isinstance(values, np.ndarray) or values.shape != shape:
        got = f"shape {values.shape}" if isinstance(values, np.ndarray) else type(values).__name__
        raise ConfigError(f"fragment: {name}: got {got}, expected an array of shape {shape}.")
    if not np.can_cast(values.dtype, dtype, "same_kind"):
        raise ConfigError(f"fragment: {name}: got {values.dtype}, expected {dtype}.")
    found = values.astype(dtype)
    if not np.isfinite(found).all():
        raise ConfigError(f"fragment: {name} has a value that is NaN or infinite.")
    return found


def _episode(sent: Fragment, steps: int) -> Episode | None:
    if not (sent.terminated or sent.truncated):
        return None
    if not math.isfinite(sent.episode_reward) or sent.episode_length < steps:
        raise ConfigError(
            f"fragment: episode_reward={sent.episode_reward}, episode_length={sent.episode_length}: expected a finite "
            f"number, and at least the {steps} steps of the fragment."
        )
    return Episode(sent.episode_reward, sent.episode_length, policy_rewards={DEFAULT_POLICY: sent.episode_reward})
