"""Steps of all agents that are replayed together."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from reef.batch import Rollout, Transitions, transition_arrays
from reef.types import Array, PolicyId


def together(
    rollouts: Mapping[PolicyId, Rollout], gamma: Callable[[PolicyId], float], num_envs: int
) -> dict[PolicyId, Transitions]:
    """The steps of `num_envs` environments in which any agent acted: by policy its agents' transitions [N, A, ...].

    extras["acted"] [N, A] is False for an agent that was absent, whose values mean nothing.
    """
    acted = {policy_id: _by_env(rollout.mask, num_envs) for policy_id, rollout in rollouts.items()}  # [T, E, A]
    kept = np.concatenate([*acted.values()], axis=2).any(axis=2)  # [T, E]
    found = {}
    for policy_id, rollout in rollouts.items():
        columns = {name: _by_env(array, num_envs)[kept] for name, array in transition_arrays(rollout).items()}
        discounts = np.full(columns["rewards"].shape, gamma(policy_id), np.float32)
        found[policy_id] = Transitions(**columns, extras={"discounts": discounts, "acted": acted[policy_id][kept]})
    return found


def as_rows(together: Transitions) -> Transitions:
    """[N, A, ...] -> [M, ...]: the M transitions of agents that acted."""
    acted = together.extras["acted"]
    columns = {name: array[acted] for name, array in transition_arrays(together).items()}
    extras = {name: array[acted] for name, array in together.extras.items() if name != "acted"}
    return Transitions(**columns, extras=extras)


def _by_env(array: Array, num_envs: int) -> Array:
    """[T, E * A, ...] -> [T, E, A, ...]."""
    steps, columns = array.shape[:2]
    return array.reshape(steps, num_envs, columns // num_envs, *array.shape[2:])
