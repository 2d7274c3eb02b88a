"""The spaces of the settings, for a worker that steps no environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from reef.config import AlgorithmConfig
from reef.envs.by_policy import Columns
from reef.envs.failures import env_name
from reef.envs.seeding import EpisodeSeeds
from reef.types import AgentId, Array, PolicyId, State


class SpacesAlone:
    """The `PolicyEnvs` where applications bring theirs: a column for each policy, and nothing to step."""

    num_envs = 1

    def __init__(self, config: AlgorithmConfig) -> None:
        """The spaces are those of each policy, else those of all."""
        self.name = env_name(config.env)
        self.envs: list[Any] = []
        self.seeds = EpisodeSeeds([])
        self.columns = {policy_id: _columns(config, policy_id) for policy_id in config.policies}

    def reset(self) -> NoReturn:
        """Nothing can be stepped."""
        raise NotImplementedError("there is no environment to reset")

    def step(self, actions: dict[PolicyId, Array]) -> NoReturn:
        """Likewise."""
        raise NotImplementedError("there is no environment to step")

    def state(self) -> State:
        """No episode is in progress here."""
        return {}

    def set_state(self, state: State) -> tuple[dict[PolicyId, Array], Array]:
        """None goes on."""
        return {}, np.zeros(1, np.bool_)

    def roles(self, env: int) -> Mapping[AgentId, PolicyId]:
        """There are no agents."""
        return {}

    def close(self) -> None:
        """Nothing is open."""


def _columns(config: AlgorithmConfig, policy_id: PolicyId) -> Columns:
    spec, own = config.spec(policy_id), config.for_policy(policy_id)
    # An empty Dict space is no missing one.
    observation_space = config.observation_space if spec.observation_space is None else spec.observation_space
    action_space = config.action_space if spec.action_space is None else spec.action_space
    return Columns.of(own, observation_space, action_space, np.arange(1))
