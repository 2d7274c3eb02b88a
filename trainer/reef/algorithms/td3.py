"""Twin delayed DDPG (Fujimoto et al. 2018): DDPG with two critics, a delayed actor and smoothed targets."""

from __future__ import annotations

from typing import Any, ClassVar

from reef.algorithms.ddpg import DDPG, DDPGConfig
from reef.config import default
from reef.replay.settings import ReplayBufferConfig


class TD3Config(DDPGConfig):
    """Settings of TD3."""

    algorithm: ClassVar[str] = "TD3"
    algorithm_class: ClassVar[str] = "reef.algorithms.td3:TD3"

    train_batch_size: int = default(100)
    num_steps_sampled_before_learning_starts: int = default(10_000)
    replay_buffer_config: ReplayBufferConfig = default({"capacity": 1_000_000, "prioritized_replay": False})
    exploration_config: dict[str, Any] = default(
        {
            "type": "GaussianNoise",
            "random_timesteps": 10_000,
            "stddev": 0.1,
            "initial_scale": 1.0,
            "final_scale": 1.0,
            "scale_timesteps": 1,
        }
    )
    tau: float = default(5e-3)
    twin_q: bool = default(True)
    policy_delay: int = default(2)
    smooth_target_policy: bool = default(True)
    l2_reg: float = default(0.0)


class TD3(DDPG):
    """As DDPG, with other settings."""

    config_class = TD3Config
