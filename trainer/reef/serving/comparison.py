"""Compares what an exported file does with what its policy does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import numpy as np

from reef.errors import ConfigError
from reef.nn.distributions.discrete import Bernoulli, Categorical
from reef.serving.finished import ActionRequest, ActionResponse, FinishedPolicy
from reef.serving.network import ActingNetwork, parts_of
from reef.spaces import Layout
from reef.types import Array

Run = Callable[[Sequence[Array]], Sequence[Array]]  # inputs in their order -> outputs
SAMPLES = (1, 64)  # observations in each pass
LARGE = 1e6  # from which on a bound counts as none
NEAR = 1e-4  # what float32 may change: of an action, of a logit, of a state


def compare(finished: FinishedPolicy, network: ActingNetwork, run: Run) -> None:
    """Raise ConfigError where `run` acts otherwise than the policy; one with a memory acts twice."""
    count_of_parts = len(network.actions.leaves)
    for count in SAMPLES:
        observations = sampled(finished, count)
        asked = finished.read(observations)
        for _ in range(2 if finished.state_names else 1):
            outputs = run([*parts_of(network.observations, observations), *asked.state])
            acted = _acted(finished, asked)
            _compare_actions(finished, acted, outputs[:count_of_parts])
            after = [np.stack(part) for part in zip(*acted.states, strict=True)]
            for name, expected, found in zip(finished.state_names, after, outputs[count_of_parts:], strict=True):
                if not np.allclose(expected, found, rtol=NEAR, atol=NEAR):
                    raise ConfigError(f"the file remembers another {name!r} than the policy. Use reef serve.")
            asked = ActionRequest(asked.rows, after, asked.rewards)


def sampled(finished: FinishedPolicy, count: int) -> list[Any]:
    """Values of the observation space for which some action is allowed; near 0 where it has no bounds."""
    layout, generator = Layout.of(finished.observation_space), np.random.default_rng(0)
    space = deepcopy(layout.space)  # whose random numbers are the environment's
    space.seed(0)
    mask = finished.policy.action_mask
    found: list[Any] = []
    while len(found) < count:
        row = np.array(layout.flatten(space.sample()))
        if row.dtype.kind == "f":
            row = np.where(np.abs(row) > LARGE, generator.standard_normal(row.shape), row).astype(row.dtype)
        if mask is None or not mask.excludes_all(row[None])[0]:
            found.append(layout.unflatten(row))
    return found


def _acted(finished: FinishedPolicy, asked: ActionRequest) -> ActionResponse:
    (acted,) = finished.act([asked])
    if isinstance(acted, Exception):
        raise acted
    return acted


def _compare_actions(finished: FinishedPolicy, acted: ActionResponse, parts: Sequence[Array]) -> None:
    layout, count = finished.policy.action_layout, len(acted.actions)
    expected = np.stack([layout.flatten(action) for action in acted.actions]).reshape(count, -1)
    leaves = zip(layout.leaves, parts, strict=True)
    found = np.concatenate([np.reshape(part - np.asarray(leaf.start), (count, -1)) for leaf, part in leaves], 1)
    alike = np.isclose(expected, found, rtol=NEAR, atol=NEAR) | _ties(finished, acted.dist_inputs, expected, found)
    if not alike.all():
        row = int(np.flatnonzero(~alike.all(1))[0])
        raise ConfigError(
            f"the file acts otherwise than the policy: {found[row].tolist()} in place of {expected[row].tolist()}. Use "
            "reef serve."
        )


def _ties(finished: FinishedPolicy, inputs: Array, expected: Array, found: Array) -> Array:
    """[N, n] bool: where two values are about as likely, and where a whole number was rounded at the middle."""
    bounds = finished.runner.columns.action_transform
    ties: Array = np.broadcast_to(bounds.whole.reshape(-1), expected.shape) & (np.abs(expected - found) <= 1)
    for part in finished.policy.dist_class.parts:
        logits, place = inputs[:, part.inputs], part.actions
        if part.make is Bernoulli:
            ties[:, place] = np.abs(logits) < NEAR
        elif part.make is Categorical:
            chosen = np.clip(found[:, [place.start]], 0, logits.shape[1] - 1).astype(np.int64)
            best, other = logits.max(1, keepdims=True), np.take_along_axis(logits, chosen, 1)
            is_choice = chosen == found[:, [place.start]]
            ties[:, [place.start]] = is_choice & (best - other <= NEAR * (1 + np.abs(best)))
    return ties
