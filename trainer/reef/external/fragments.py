"""Fragments that a client acted by itself, as they are sent and as they are checked."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from reef.batch import Episode
from reef.errors import ConfigError
from reef.external.episodes.episode import LONGEST, Played
from reef.external.episodes.steps import RecordedSteps
from reef.external.policies import PoliciesOfApplications
from reef.external.wire import Fragment, Fragments, Result
from reef.nn.distributions import Squashed, SquashedGaussian
from reef.nn.policies import Policy
from reef.types import Array, RecurrentState

ROUNDING = 1e-6  # of an action that an application chose, brought from its bounds to -1 and 1


def as_messages(played: Played) -> Iterator[Fragments]:
    """What was played as it is sent: a fragment in a message, the number of steps and the result with the last one."""
    for steps in played.fragments[:-1]:
        yield Fragments(fragments=[_as_message(steps)], env_steps=0)
    done, result = played.episode, None
    if done is not None:
        result = Result(reward=done.reward, length=done.length, policy_rewards=done.policy_rewards)
    last = [_as_message(steps) for steps in played.fragments[-1:]]
    yield Fragments(fragments=last, env_steps=played.env_steps, episode=result)


def _as_message(steps: RecordedSteps) -> Fragment:
    return Fragment(
        policy_id=steps.policy_id,
        obs=steps.obs,
        actions=steps.actions,
        rewards=steps.rewards,
        dist_inputs=steps.dist_inputs,
        terminated=steps.terminated,
        truncated=steps.truncated,
        version=steps.version,
        state_in=steps.state_in or None,
    )


def checked(sent: Fragments, policies: PoliciesOfApplications) -> Played:
    """What a client played; ConfigError where it is none of these policies."""
    fragments = [_checked_fragment(each, policies) for each in sent.fragments]
    episode, env_steps = _episode(sent, policies), sent.env_steps
    steps = sum(map(len, fragments))
    if not 0 <= env_steps <= LONGEST or (not policies.has_agents and env_steps != steps):
        expected = f"0 to {LONGEST}" if policies.has_agents else f"{steps}, as there are in the fragments"
        raise ConfigError(f"fragments: env_steps={env_steps}: expected {expected}.")
    if not fragments and not (policies.has_agents and episode):
        raise ConfigError("fragments: expected at least one.")
    ended = [each.terminated or each.truncated for each in fragments]
    if not policies.has_agents and ended != [False] * (len(ended) - 1) + [episode is not None]:
        raise ConfigError("fragments: episode: expected where the last fragment is terminated or truncated, alone.")
    is_whole = all(ended) if policies.has_agents else episode is not None and episode.length == steps
    if not policies.may_cut and not is_whole:
        raise ConfigError("fragment: a part of an episode, but use_critic=False learns from whole ones. Send it whole.")
    return Played(fragments, env_steps, episode)


def _checked_fragment(sent: Fragment, policies: PoliciesOfApplications) -> RecordedSteps:
    policy = policies.by_id.get(sent.policy_id)
    if policy is None:
        raise ConfigError(f"fragment: policy_id={sent.policy_id!r}: expected one of {list(policies.by_id)}.")
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
        policy_id=sent.policy_id,
        obs=_checked("obs", sent.obs, (steps + 1, *obs.shape), obs.dtype),
        actions=_checked("actions", sent.actions, (steps, *actions.shape), actions.action_dtype),
        rewards=_checked("rewards", sent.rewards, (steps,), np.dtype(np.float32)),
        dist_inputs=inputs if policy.records_inputs else None,
        terminated=sent.terminated,
        truncated=sent.truncated,
        version=_version(sent, policies),
        state_in=_checked_memory(sent.state_in, acting),
    )
    for name, layout, values in (("obs", obs, found.obs), ("actions", actions, found.actions)):
        if impossible := layout.first_impossible(values):
            raise ConfigError(f"fragment: {name} has {impossible[1]}, expected {impossible[2]}.")
    policy.check_mask(found.obs[:-1], found.actions)
    if (outside := _first_unreachable(found.actions, acting)) is not None:
        raise ConfigError(f"fragment: actions has {outside:g}, expected -1 to 1: this policy chooses no others.")
    if found.dist_inputs is not None and not policy.are_possible(found.actions, found.dist_inputs):
        raise ConfigError("fragment: actions has one that is impossible by its dist_inputs.")
    return found


def _first_unreachable(
    actions: Array,  # [T, *action] as a policy chooses them
    policy: Policy,
) -> float | None:
    """The first number that the policy cannot choose, if there is one: actions of SAC, TQC, DDPG and TD3 are a tanh."""
    flat = actions.reshape(len(actions), -1)
    for part in policy.dist_class.parts:
        numbers = flat[:, part.actions]
        if part.make in (Squashed, SquashedGaussian) and len(outside := numbers[np.abs(numbers) > 1 + ROUNDING]):
            return float(outside[0])
    return None


def _version(sent: Fragment, policies: PoliciesOfApplications) -> int:
    """The version of the weights that acted; a client may have later ones than a server that was restored."""
    if sent.version < 0:
        raise ConfigError(f"fragment: version={sent.version}: expected that of the weights, from 0 on.")
    return min(sent.version, policies.published()[0])


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


def _episode(sent: Fragments, policies: PoliciesOfApplications) -> Episode | None:
    result = sent.episode
    if result is None:
        return None
    if unknown := result.policy_rewards.keys() - policies.by_id.keys():
        raise ConfigError(f"fragments: episode: policy_rewards has {sorted(unknown)}, expected {list(policies.by_id)}.")
    rewards = [result.reward, *result.policy_rewards.values()]
    if not all(map(math.isfinite, rewards)) or result.length < sent.env_steps:
        raise ConfigError(
            f"fragments: episode: reward={result.reward}, length={result.length}: expected finite numbers, and at "
            f"least the {sent.env_steps} steps of the fragments."
        )
    return Episode(result.reward, result.length, policy_rewards=result.policy_rewards)
