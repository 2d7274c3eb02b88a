"""Ape-X DDPG (Horgan et al. 2018, section 3.2): the workers and the replay memory of Ape-X with the update of DDPG.

Rollout [T, B] by older weights, with the values of its critic -> n-step transitions and first priorities, in the shards
of the memory -> batches -> DDPG's update -> new priorities, and weights for the workers.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from reef.algorithms.apex import Apex, ApexConfig
from reef.algorithms.ddpg import DDPGConfig, DDPGLearner
from reef.batch import Rollout
from reef.config import default
from reef.nn.distributions import Squashed
from reef.nn.q_critics import ContinuousActorCritic
from reef.spaces import Space
from reef.types import Array


class ApexDDPGConfig(ApexConfig, DDPGConfig):
    """Settings of Ape-X DDPG."""

    algorithm: ClassVar[str] = "APEX_DDPG"
    algorithm_class: ClassVar[str] = "reef.algorithms.apex_ddpg:ApexDDPG"
    policy_class: ClassVar[str] = "reef.algorithms.apex_ddpg:estimating_actor_critic"

    exploration_config: dict[str, Any] = default({"type": "PerWorkerOrnsteinUhlenbeckNoise"})


class EstimatingActorCritic(ContinuousActorCritic):
    """Workers have the critics too, where they estimate values."""

    @property
    def acting_parameters(self) -> list[Tensor]:
        """All, where values are estimated."""
        return [self.flat.vector] if self.config.workers_estimate_values else super().acting_parameters

    def acted_values(self, rollout: Rollout) -> tuple[Array, Array]:
        """[T, B] each: the values of the actions taken, and of those of the actor, by the smaller critic."""
        obs = torch.as_tensor(rollout.obs, device=self.device).flatten(0, 1)
        actions = torch.as_tensor(rollout.actions, device=self.device).flatten(0, 1)
        found = self.critics(obs, actions).amin(0), self.state_values(obs)
        q_values, values = (values.cpu().numpy().reshape(rollout.shape) for values in found)
        return q_values, values

    def state_values(self, obs: Tensor) -> Tensor:
        """[N, *obs] -> [N], the values of acting without noise."""
        return self.critics(obs, torch.tanh(self.actor(obs))).amin(0)  # type: ignore[no-any-return]


def estimating_actor_critic(
    config: ApexDDPGConfig, observation_space: Space, action_space: Space
) -> EstimatingActorCritic:
    """Build the networks for these settings."""
    return EstimatingActorCritic(config, observation_space, action_space, twin_q=config.twin_q, box=Squashed)


class ApexDDPG(Apex):
    """Ape-X with DDPG's update."""

    config_class = ApexDDPGConfig
    learner_class = DDPGLearner
