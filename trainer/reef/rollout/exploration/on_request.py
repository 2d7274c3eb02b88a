"""Chooses actions for observations that a person gives, as the policy does where it samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from reef.config import AlgorithmConfig
from reef.envs.wrappers import ActionTransform
from reef.models.preprocessors import Preprocessor
from reef.nn.distributions import ActionDistribution
from reef.nn.queries.policy import Transform
from reef.rollout.exploration.parameter_noise import ParameterNoise
from reef.rollout.policies.connectors import ConnectedTransform
from reef.types import Array, RecurrentState

if TYPE_CHECKING:
    from reef.rollout.policy_runner import PolicyRunner


class OnRequest:
    """The `Chooser` of a policy that has a runner."""

    def __init__(self, runner: PolicyRunner, config: AlgorithmConfig, timestep: Callable[[], int]) -> None:
        """`timestep()`: environment steps so far, for exploration schedules."""
        self.runner, self.config, self.timestep = runner, config, timestep

    @property
    def preprocessor(self) -> Preprocessor:
        """Of the observations of the environment, before a connector."""
        runner = self.runner
        return runner.policy.preprocessor if runner.to_policy is None else runner.to_policy.preprocessor

    def observed(self, observation: Any) -> Array:
        """A value of the environment's observation space -> [*obs], by connector and filter."""
        return np.array(self.runner.filtered(self.preprocessor.flatten(observation)[None])[0])

    def choose(
        self, obs: Array, state: RecurrentState, explore: bool | None, timestep: int | None
    ) -> tuple[Array, ActionDistribution, RecurrentState]:
        """[N, *obs] and the state -> actions [N, *action], what they were chosen by, and the state after that.

        `timestep`: of schedules of the exploration, in environment steps; None: the present one.
        """
        runner = self.runner
        policy, exploration, generator = runner.policy, runner.exploration, runner.generator
        explore = runner.explores if explore is None else explore
        if explore and isinstance(exploration, ParameterNoise):
            distribution, state = exploration.act_once(policy, obs, state, generator)
        else:
            distribution, state = policy.act(obs, state, generator if explore else None)
        timestep = self.timestep() if timestep is None else timestep
        return exploration.apart().choose(distribution, timestep, explore, generator), distribution, state

    def transform(self, *, unsquash: bool | None, clip: bool | None) -> Transform:
        """Pass actions through the connector, if there is one, and into the bounds of a Box; None: as the settings."""
        bounded = self.runner.columns.action_transform
        if unsquash is not None or clip is not None:
            bounded = ActionTransform(
                self.runner.policy.action_layout,
                normalize=self.config.normalize_actions if unsquash is None else unsquash,
                clip=self.config.clip_actions if clip is None else clip,
            )
        return bounded if self.runner.to_env is None else ConnectedTransform(self.runner.to_env, bounded)

    def reward(self, reward: float) -> float:
        """A reward as the policy is trained on it."""
        return float(self.runner.columns.reward_transform(np.array([reward], np.float32))[0])
