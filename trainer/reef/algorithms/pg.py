"""The policy gradient (Williams 1992, REINFORCE): A2C without a critic, on the returns of whole episodes."""

from __future__ import annotations

from typing import ClassVar, Literal

from reef.algorithms.a2c import A2C, A2CConfig
from reef.config import Scheduled, default


class PGConfig(A2CConfig):
    """Settings of PG."""

    algorithm: ClassVar[str] = "PG"
    algorithm_class: ClassVar[str] = "reef.algorithms.pg:PG"

    lr: Scheduled = default(4e-4)
    grad_clip: float | None = default(None)
    rollout_fragment_length: int | Literal["auto"] = default("auto")
    batch_mode: str = default("complete_episodes")
    use_critic: bool = default(False)
    entropy_coeff: float | list[list[float]] = default(0.0)


class PG(A2C):
    """As A2C, with other settings."""

    config_class = PGConfig
