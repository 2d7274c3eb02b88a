"""Ape-X DDPG (Horgan et al. 2018, section 3.2): the workers and the replay memory of Ape-X with the update of DDPG.

Rollout [T, B] by older weights, with the values of its critic -> n-step transitions and first priorities, in the shards
of the memory -> batches -> DDPG's update -> new priorities, and weights for the workers.
"""

from __future__ import annotations

from typing import Any, ClassVar

from reef.algorithms.apex import Apex, ApexConfig
from reef.algorithms.ddpg import DDPGConfig, DDPGLearner
from reef.config import default


class ApexDDPGConfig(ApexConfig, DDPGConfig):
    """Settings of Ape-X DDPG."""

    algorithm: ClassVar[str] = "APEX_DDPG"
    algorithm_class: ClassVar[str] = "reef.algorithms.apex_ddpg:ApexDDPG"

    exploration_config: dict[str, Any] = default({"type": "PerWorkerOrnsteinUhlenbeckNoise"})


class ApexDDPG(Apex):
    """Ape-X with DDPG's update."""

    config_class = ApexDDPGConfig
    learner_class = DDPGLearner
