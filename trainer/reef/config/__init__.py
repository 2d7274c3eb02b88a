"""Settings: declared once, read flat, written in sentences, checked all together.

An algorithm declares its own like this (no decorator; `default` gives an inherited setting another default):

    class PPOConfig(AlgorithmConfig):
        algorithm: ClassVar[str] = "PPO"
        algorithm_class: ClassVar[str] = "reef.algorithms.ppo:PPO"
        lr: Scheduled = default(5e-5)
        model: ModelConfig = default({"vf_share_layers": False})
        lambda_: float = setting(1.0, "Decay of the advantage estimate.", minimum=0.0, maximum=1.0)

        def problems(self) -> Iterator[str]:  # asked only when every value is fine by itself
            yield from super().problems()
            yield from self.batch_size_problems()
"""

from reef.config.algorithm_config import AlgorithmConfig
from reef.config.declaration import default, setting
from reef.config.groups.multi_agent import PolicySpec
from reef.config.groups.training import ModelConfig
from reef.schedules import Scheduled

__all__ = ["AlgorithmConfig", "ModelConfig", "PolicySpec", "Scheduled", "default", "setting"]
