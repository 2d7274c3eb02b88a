"""Steps of all agents that are replayed together."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from reef.batch import Rollout, Transitions, transition_arrays
from reef.types import Array, PolicyId


def together(
    rollouts: Mapping[PolicyId, Rollout], gamma: Callable[[PolicyId], float], num_envs: int
) -> dict[PolicyId, Transitions]:
    """The steps of `num_envs` environments in which all agents acted: by policy its agents' transitions [N, A, ...]."""
    masks = [_by_env(rollout.mask, num_envs) for rollout in rollouts.values()]
    complete = np.concatenate(masks, axis=2).all(axis=2)  # [T, E]
    found = {}
    for policy_id, rollout in rollouts.items():
        columns = {name: _by_env(array, num_envs)[complete] for name, array in transition_arrays(rollout).items()}
        discounts = np.full(columns["rewards"].shape, gamma(policy_id), np.float32)
        found[policy_id] = Transitions(**columns, extras={"discounts": discounts})
    return found


def as_rows(together: Transitions) -> Transitions:
    """[N, A, ...] -> [N * A, ...]."""

    def flat(array: Array) -> Array:
        return array.reshape(-1, *array.shape[2:])

    columns = {name: flat(array) for name, array in transition_arrays(together).items()}
    return Transitions(**columns, extras={name: flat(array) for name, array in together.extras.items()})


def _by_env(array: Array, num_envs: int) -> Array:
    """[T, E * A, ...] -> [T, E, A, ...]."""
    steps, columns = array.shape[:2]
    return array.reshape(steps, num_envs, columns // num_envs, *array.shape[2:])
