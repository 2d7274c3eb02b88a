"""The policies of a checkpoint by themselves, without the algorithm and its environment."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from reef.config import AlgorithmConfig
from reef.config.spaces import space_from_dict, space_to_dict
from reef.envs.atari.names import is_atari
from reef.envs.by_policy import Columns
from reef.errors import CheckpointError, ConfigError
from reef.nn.architecture import another_network
from reef.nn.policies import Policy
from reef.rollout.exploration.on_request import OnRequest
from reef.rollout.policy_runner import PolicyRunner
from reef.run.checkpoint.models import weights_of
from reef.spaces import PolicySpaces
from reef.types import PolicyId, State


def policies_of(
    config: AlgorithmConfig, state: State, policy_ids: Collection[PolicyId] | None = None
) -> dict[PolicyId, Policy]:
    """The policies in the state of a checkpoint with these settings, see `reef.load_policies`."""
    stored = sorted(state["networks"])
    if unknown := [name for name in policy_ids or () if name not in stored]:
        raise CheckpointError(f"PolicyID {unknown[0]!r} not found; there is {stored}.")
    return {name: _policy(config, name, state) for name in (stored if policy_ids is None else policy_ids)}


def _policy(config: AlgorithmConfig, policy_id: PolicyId, state: State) -> Policy:
    spaces = state.get("spaces", {}).get(policy_id)
    if spaces is None:
        raise CheckpointError(
            f"it does not say what policy {policy_id!r} observes. Use Algorithm.from_checkpoint(path), which asks the "
            "environment."
        )
    observed, acted = map(space_from_dict, spaces)
    columns = Columns.of(config.for_policy(policy_id), observed, acted, np.arange(1), atari=is_atari(config))
    runner = PolicyRunner(config, 0, columns, policy_id)
    policy = runner.policy
    if problem := another_network(state["networks"][policy_id], policy.architecture()):
        raise CheckpointError(f"policy {policy_id!r} does not fit: {problem}.")
    if policy_id not in (weights := weights_of(state, [policy_id])):
        raise CheckpointError(
            f"policy {policy_id!r} is not in it: checkpoint_trainable_policies_only left it out, as it does not learn."
        )
    policy.flat.load(weights[policy_id])
    if runner.filter is not None:
        runner.filter.set_state(state["workers"]["local"]["filters"][policy_id])
    timestep = state["counters"][f"num_{config.count_steps_by}_sampled"]
    policy.chooser = OnRequest(runner, config, lambda: timestep)
    return policy


def described(spaces: PolicySpaces) -> dict[PolicyId, Any]:
    """The spaces of observations and actions by policy, as a checkpoint holds them; those without a plain form not."""
    found = {}
    for policy_id, both in spaces.items():
        try:
            found[policy_id] = [space_to_dict(space) for space in both]
        except ConfigError:  # a class of the user's
            continue
    return found
