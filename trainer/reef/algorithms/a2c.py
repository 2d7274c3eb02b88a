"""Advantage actor-critic (Mnih et al. 2016, section 4), with workers that wait for each other.

Rollout [T, B] -> advantages by GAE -> one gradient step of the policy gradient and the value error -> new weights.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor

from reef.algorithms.actor_critic import ActorCriticAlgorithm, ActorCriticConfig, ActorCriticLearner
from reef.config import Scheduled, default
from reef.nn.gradients import Columns, Loss


class A2CConfig(ActorCriticConfig):
    """Settings of A2C."""

    algorithm: ClassVar[str] = "A2C"
    algorithm_class: ClassVar[str] = "reef.algorithms.a2c:A2C"

    lr: Scheduled = default(1e-4)
    grad_clip: float | None = default(40.0)
    train_batch_size: int = default(200)
    rollout_fragment_length: int | Literal["auto"] = default(20)
    min_sample_timesteps_per_iteration: int | None = default(1000)
    vf_loss_coeff: float = default(0.5)
    entropy_coeff: float | list[list[float]] = default(0.01)
    normalize_advantages: bool = default(False)


class A2CLearner(ActorCriticLearner):
    """Policy gradient, squared value error, entropy bonus."""

    config: ActorCriticConfig

    def loss(self, outputs: tuple[Tensor, Tensor], minibatch: Columns) -> Loss:
        """The mean of A2C's loss; `outputs`: distribution inputs [N, D] and values [N]."""
        dist_inputs, values = outputs
        dist = self.policy.dist_class(dist_inputs)
        stats = {
            "policy_loss": -(dist.logp(minibatch["actions"]) * minibatch["advantages"]).mean(),
            "vf_loss": (values - minibatch["value_targets"]).square().mean(),
            "entropy": dist.entropy().mean(),
        }
        return Loss(self.weighted_sum(stats), {name: value.detach() for name, value in stats.items()})


class A2C(ActorCriticAlgorithm):
    """Sample a batch, improve on it by one step, publish the weights."""

    config_class = A2CConfig
    learner_class = A2CLearner
