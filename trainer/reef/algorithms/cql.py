"""Conservative Q-learning (Kumar et al. 2020), on SAC: critics that trust no action which the recording does not show.

Recorded steps [N] -> n-step transitions -> one step each of critics, actor, temperature. The critics' loss raises the
values of the recorded actions above those of others; at first the actor imitates the recording.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor

from reef.algorithms.offline import OfflineAlgorithm, OfflineTransitionsConfig
from reef.algorithms.sac import SACConfig, SACLearner
from reef.config import setting
from reef.config.ignored import Network, ignored
from reef.nn.distributions import SquashedGaussian
from reef.nn.gradients import Columns, Loss
from reef.nn.q_critics import SoftDiscrete


class CQLConfig(OfflineTransitionsConfig, SACConfig):
    """Settings of CQL."""

    algorithm: ClassVar[str] = "CQL"
    algorithm_class: ClassVar[str] = "reef.algorithms.cql:CQL"

    min_q_weight: float = setting(5.0, "Weight of the conservative loss; 0 is SAC on recorded steps", minimum=0.0)
    temperature: float = setting(1.0, "Softness of the maximum over actions in the conservative loss", above=0.0)
    num_actions: int = setting(
        10, "Continuous actions: random ones, and ones of the actor at s and at s', of each this many", minimum=1
    )
    bc_iters: int = setting(
        20_000, "First gradient steps, in which the actor imitates the recorded actions", minimum=0, unit="steps"
    )

    def ignored_settings(self, network: Network) -> Iterator[str]:
        """Yield notes for the conservative loss that is not there."""
        yield from super().ignored_settings(network)
        if not self.min_q_weight:
            yield from ignored(self, "with min_q_weight=0", "temperature", "num_actions")


class CQLLearner(SACLearner):
    """SAC's steps; the critics also see actions that the recording does not show."""

    config: CQLConfig

    def critic_columns(self, minibatch: Columns) -> Columns:
        """SAC's with `other_actions`."""
        return super().critic_columns(minibatch) | self.other_actions(minibatch)

    @torch.no_grad()
    def other_actions(self, minibatch: Columns) -> Columns:
        """The columns of the critics: the recorded rows [N], and behind them [k N] with other actions at the same s.

        `log_density` [k, N]: of these actions, by which the conservative loss weighs them (appendix F); 0 for discrete
        ones, which are all there.
        """
        obs, recorded = minibatch["obs"], minibatch["actions"]
        count, config = len(obs), self.config
        if not config.min_q_weight:
            return {}
        if isinstance(self.policy, SoftDiscrete):
            actions = torch.arange(self.policy.actions, device=self.device).repeat_interleave(count)
            # excluded actions have no part in it
            log_density = -self.policy.masked(obs, torch.zeros(count, self.policy.actions, device=self.device)).T
        else:
            rows, size = config.num_actions * count, self.policy.action_layout.size
            random = torch.special.ndtr(self.noise_of_actions(count)) * 2 - 1  # uniform, drawn as all other noise is
            found = [(random, torch.full((rows,), -size * math.log(2.0), device=self.device))]
            for at in (obs, minibatch["next_obs"]):
                inputs = self.policy.actor(at).repeat(config.num_actions, 1)
                found.append(SquashedGaussian(inputs).sample(self.noise_of_actions(count)))
            actions = torch.cat([each for each, _ in found]).reshape(-1, *recorded.shape[1:])
            log_density = torch.cat([density for _, density in found]).reshape(-1, count)
        return {
            "obs": torch.cat([obs] * (1 + len(log_density))),
            "actions": torch.cat([recorded, actions.to(recorded.dtype)]),
            "log_density": log_density,
        }

    def noise_of_actions(self, count: int) -> Tensor:
        """[k count, n], one action after the other, so that each learner has its rows of every one."""
        return torch.cat([self.noise(count) for _ in range(self.config.num_actions)])

    def critic_loss(self, outputs: Tensor, minibatch: Columns) -> Loss:
        """SAC's, and the conservative loss (equation 4); `outputs`: [critics, (1 + k) N]."""
        if not self.config.min_q_weight:
            return super().critic_loss(outputs, minibatch)
        count, temperature = len(minibatch["targets"]), self.config.temperature
        recorded = outputs[:, :count]
        found = super().critic_loss(recorded, minibatch)
        others = outputs[:, count:].reshape(len(outputs), -1, count) - minibatch["log_density"]
        largest = temperature * torch.logsumexp(others / temperature, 1)  # [critics, N]
        gap = (largest - recorded).mean(1).sum()
        return Loss(found.value + self.config.min_q_weight * gap, found.stats | {"cql_gap": gap.detach()}, found.rows)

    def actor_loss(self, outputs: Tensor, minibatch: Columns) -> Loss:
        """SAC's; in the first steps the likelihood of the recorded actions is in place of the critics' values."""
        if self.steps >= self.config.bc_iters:
            return super().actor_loss(outputs, minibatch)
        _, logp = self.expected(self.policy.critics, minibatch["obs"], outputs)
        imitated = self.policy.dist_class(outputs).logp(minibatch["actions"])
        return Loss((self.alpha * logp - imitated).mean(), {"entropy": -logp.detach().mean()}, {"logp": logp.detach()})


class CQL(OfflineAlgorithm):
    """Learn from recorded episodes alone."""

    config_class = CQLConfig
    learner_class = CQLLearner
