"""Monotonic advantage re-weighted imitation learning (Wang et al. 2018).

Recorded steps [N] with their returns -> advantages over the critic's values -> one gradient step of the likelihood of
the recorded actions, weighted by exp(beta * advantage / c), and of the value error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor

from reef.algorithms.offline import OfflineAlgorithm, OfflineConfig
from reef.batch import Transitions
from reef.config import Scheduled, default, setting
from reef.config.ignored import Network, ignored
from reef.learn.learner import Learner
from reef.learn.minibatches import in_order, transition_columns
from reef.math.td import td_targets
from reef.nn.gradients import Columns, Loss
from reef.types import State, Stats

# Largest weight of a step: the return of one lucky episode must not outweigh all others.
MOST_WEIGHT = 100.0


class MARWILConfig(OfflineConfig):
    """Settings of MARWIL."""

    algorithm: ClassVar[str] = "MARWIL"
    algorithm_class: ClassVar[str] = "reef.algorithms.marwil:MARWIL"
    policy_class: ClassVar[str] = "reef.nn.make:actor_critic"

    lr: Scheduled = default(1e-4)
    train_batch_size: int = default(2000)
    beta: float = setting(1.0, "How much better actions count more; 0 imitates all alike", minimum=0.0)
    vf_coeff: float = setting(1.0, "Weight of the value loss", minimum=0.0)
    moving_average_sqd_adv_norm_start: float = setting(
        100.0, "Mean square of the advantages, which scales them, before the first step", above=0.0
    )
    moving_average_sqd_adv_norm_update_rate: float = setting(
        1e-8, "Share by which each step moves that mean towards its batch's", minimum=0.0, maximum=1.0
    )
    postprocess_inputs: bool = setting(
        True, "Compute the returns of the recorded episodes: beta > 0 needs them, beta=0 none", group="offline_data"
    )

    @property
    def summed_rewards(self) -> int | None:
        """All up to the episode's end, if `beta` weighs actions by them."""
        return None if self.beta else 1

    def problems(self) -> Iterator[str]:
        """Yield what does not go together."""
        yield from super().problems()
        if self.beta > 0 and not self.postprocess_inputs:
            yield f"postprocess_inputs=False: beta={self.beta:g} needs returns. Set it to True, or beta to 0."

    def ignored_settings(self, network: Network) -> Iterator[str]:
        """Yield notes for what plain imitation does not read."""
        yield from super().ignored_settings(network)
        if not self.beta:
            keys = ("gamma", "vf_coeff", *(key for key in self.declared if key.startswith("moving_average")))
            yield from ignored(self, "with beta=0", *keys)


def imitation_loss(logp: Tensor) -> Loss:
    """Mean loss that imitates all actions alike; `logp` [N]: their log-likelihoods."""
    policy_loss = -logp.mean()
    return Loss(policy_loss, {"policy_loss": policy_loss.detach()})


class MARWILLearner(Learner[Transitions]):
    """One gradient step per `train_batch_size` recorded steps."""

    learns_from = Transitions
    config: MARWILConfig
    policy: Any  # an actor and a critic

    def setup(self) -> None:
        """Train the whole policy by one loss, and begin the mean square of the advantages."""
        super().setup()
        # float64, or steps of 1e-8 would be rounded away
        start = self.config.moving_average_sqd_adv_norm_start
        self.mean_square = torch.tensor(start, dtype=torch.float64, device=self.device)

    def prepare(self, batch: Transitions) -> Columns:
        """Add `returns` [N], which imitation alone does not read.

        They are discounted to the episode's end, with the critic's value where it was cut off.
        """
        columns = transition_columns(batch, self.device)
        if not self.config.beta:
            return {"obs": columns["obs"], "actions": columns["actions"]}
        with torch.inference_mode():
            values = self.policy.values(columns["next_obs"])
        returns = td_targets(columns["rewards"], columns["discounts"], columns["terminated"], values)
        return {"obs": columns["obs"], "actions": columns["actions"], "returns": returns}

    def minibatches(self, columns: Columns) -> Iterator[Columns]:
        """Yield the drawn rows in their order."""
        return in_order(columns, self.minibatch_size, self.rank, self.world_size)

    def loss(self, outputs: tuple[Tensor, Tensor], minibatch: Columns) -> Loss:
        """Mean loss (equations 6 and 7); `outputs`: distribution inputs [N, D] and values [N]."""
        dist_inputs, values = outputs
        logp = self.policy.dist_class(dist_inputs).logp(minibatch["actions"])
        if not self.config.beta:
            return imitation_loss(logp)
        errors = minibatch["returns"] - values
        advantages = errors.detach()
        policy_loss, vf_loss = -(self.action_weights(advantages) * logp).mean(), 0.5 * errors.square().mean()
        stats = {"policy_loss": policy_loss, "vf_loss": vf_loss, "mean_square_advantage": advantages.square().mean()}
        return Loss(policy_loss + self.config.vf_coeff * vf_loss, {name: each.detach() for name, each in stats.items()})

    def action_weights(self, advantages: Tensor) -> Tensor:
        """[N] -> [N], how much each action counts."""
        return (self.config.beta * advantages / self.mean_square.sqrt()).exp().clamp(max=MOST_WEIGHT)

    def adapt(self, stats: Stats) -> Stats:
        """Move the mean square of the advantages towards that of the batch."""
        if "mean_square_advantage" in stats:
            rate = self.config.moving_average_sqd_adv_norm_update_rate
            self.mean_square += rate * (stats["mean_square_advantage"] - self.mean_square)
        return stats

    def state(self) -> State:
        """The learner's state with the mean square of the advantages."""
        return super().state() | {"mean_square": self.mean_square.item()}

    def set_state(self, state: State) -> None:
        """Restore what `state` returned."""
        super().set_state(state)
        self.mean_square.fill_(state["mean_square"])


class MARWIL(OfflineAlgorithm):
    """Learn from recorded episodes, from the better actions more."""

    config_class = MARWILConfig
    learner_class = MARWILLearner
