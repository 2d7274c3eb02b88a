"""Asynchronous PPO: IMPALA with the clipped surrogate and a target network (Luo et al. 2020, IMPACT).

Rollout [T, B] by older weights -> queue -> V-trace for the target network's policy -> clipped surrogate -> new weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from reef.algorithms.impala import IMPALA, IMPALAConfig, IMPALALearner
from reef.batch import Rollout
from reef.config import setting
from reef.config.ignored import Network, ignored
from reef.learn.minibatches import Rows
from reef.learn.sequences import Sequences, layout_of
from reef.math.surrogate import KLPenalty, clipped_surrogate
from reef.nn.gradients import Columns, Loss
from reef.nn.policies import Policy
from reef.nn.targets import Target
from reef.types import Array, State, Stats

# Largest likelihood ratio of the policy that acted to the target policy (rho in the paper).
LARGEST_RATIO = 2.0


class APPOConfig(IMPALAConfig):
    """Settings of APPO."""

    algorithm: ClassVar[str] = "APPO"
    algorithm_class: ClassVar[str] = "reef.algorithms.appo:APPO"

    clip_param: float = setting(0.4, "The likelihood ratio is clipped to 1 +- this (eq. 7)", above=0.0)
    target_update_frequency: int = setting(
        1, "Updates between two moves of the target network.", minimum=1, unit="updates"
    )
    tau: float = setting(1.0, "Fraction of the online weights that each update copies.", above=0.0, maximum=1.0)
    use_kl_loss: bool = setting(False, "Add a penalty for the KL divergence from the target network's policy.")
    kl_coeff: float = setting(1.0, "First weight of the KL penalty (eq. 8); 0 switches it off", minimum=0.0)
    kl_target: float = setting(0.01, "KL in nats that the adaptive penalty steers to", above=0.0)

    @property
    def passes_per_update(self) -> int:
        """All of a batch, unless it takes turns with others: the target network does not move between them."""
        return self.num_sgd_iter if self.minibatch_buffer_size == 1 else 1

    def problems(self) -> Iterator[str]:
        """Yield contradictions between these settings."""
        yield from super().problems()
        if self.use_kl_loss and self.target_update_frequency == self.passes_per_update == self.tau == 1:
            yield (
                "use_kl_loss=True has no effect with target_update_frequency=1, tau=1 and one pass in an update: the "
                "target network equals the policy in each step. Set target_update_frequency above 1, or num_sgd_iter "
                "with minibatch_buffer_size=1."
            )

    def ignored_settings(self, network: Network) -> Iterator[str]:
        """Yield notes for the weight of a penalty that is not there."""
        yield from super().ignored_settings(network)
        if not self.use_kl_loss:
            yield from ignored(self, "without use_kl_loss", "kl_coeff", "kl_target")


class APPOLearner(IMPALALearner):
    """Clipped surrogate against the target network's policy, squared value error, entropy bonus."""

    config: APPOConfig

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.num_updates, self.passes = 0, self.config.passes_per_update
        self.kl_penalty = KLPenalty(self.config.kl_coeff, self.config.kl_target, self.device)
        self._target_layout = layout_of(self.target.network, self.config, self.device)

    def setup(self) -> None:
        """Train the whole policy by `loss`; make the target network."""
        super().setup()
        self.target: Target[Policy] = Target(
            self.policy, tau=self.config.tau, period=self.config.target_update_frequency
        )

    @property
    def target_layout(self) -> Rows | Sequences:
        """Reads rollouts with the target network."""
        return self._target_layout

    def begin(self, timestep: int) -> None:
        """Apply the schedules; move the target network when it is due."""
        super().begin(timestep)
        self.target.follow(self.num_updates)
        self.num_updates += 1

    def acted(self, batch: Rollout) -> dict[str, Array]:
        """Adds the log-likelihoods that the ratio is taken to, and for the KL the target's distribution.

        The ratio of the paper, min(acted / target, 2) (policy / acted), is policy / max(target, acted / 2).
        """
        acted = batch.extras["action_logp"]
        found = {"old_logp": np.maximum(batch.extras["target_logp"], acted - math.log(LARGEST_RATIO))}
        if self.config.use_kl_loss:
            found["target_dist_inputs"] = batch.extras["target_dist_inputs"]
        return super().acted(batch) | found

    def loss(self, outputs: tuple[Tensor, Tensor], minibatch: Columns) -> Loss:
        """The mean of APPO's loss; `outputs`: distribution inputs [N, D] and values [N]."""
        config = self.config
        dist_inputs, values = outputs
        dist = self.policy.dist_class(dist_inputs)
        surrogate = clipped_surrogate(
            dist.logp(minibatch["actions"]), minibatch["old_logp"], minibatch["advantages"], config.clip_param
        )
        stats = {
            "policy_loss": -surrogate.mean(),
            "vf_loss": (values - minibatch["value_targets"]).square().mean(),
            "entropy": dist.entropy().mean(),
        }
        loss = self.weighted_sum(stats)
        if config.use_kl_loss:
            stats["kl"] = self.policy.dist_class(minibatch["target_dist_inputs"]).kl(dist).mean()
            loss = loss + self.kl_penalty.coeff * stats["kl"]
        return Loss(loss, {name: value.detach() for name, value in stats.items()})

    def adapt(self, stats: Stats) -> Stats:
        """Adapt the weight of the KL to `kl_target`, as PPO does."""
        return self.kl_penalty.adapt(stats) if self.config.use_kl_loss else stats

    def set_weights(self, weights: Array) -> None:
        """Overwrite the parameters, and copy them to the target."""
        super().set_weights(weights)
        self.target.copy_source()

    def state(self) -> State:
        """The learner's state with the target network and the adapted weight of the KL."""
        own = {"target": self.target.state(), "num_updates": self.num_updates, "kl_coeff": self.kl_penalty.value}
        return super().state() | own

    def set_state(self, state: State) -> None:
        """Restore what `state` returned."""
        super().set_state(state)
        self.target.set_state(state["target"])
        self.num_updates = state["num_updates"]
        self.kl_penalty.value = state["kl_coeff"]


class APPO(IMPALA):
    """As IMPALA, with another learner."""

    config_class = APPOConfig
    learner_class = APPOLearner
