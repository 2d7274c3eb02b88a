"""Truncated quantile critics (Kuznetsov et al. 2020): SAC whose critics learn quantiles of the return.

As SAC, but each critic has several outputs, the quantiles of the return. The targets leave out the largest quantiles
of all critics together, against values that are too high.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor

from reef.algorithms.sac import SAC, SACConfig, SACLearner
from reef.config import setting
from reef.math.td import quantile_huber, td_targets, weighted_mean
from reef.nn.architecture import Architecture
from reef.nn.distributions import SquashedGaussian
from reef.nn.gradients import Columns, Loss
from reef.nn.q_critics import Critics, CustomCritics, SoftContinuous
from reef.spaces import Space


class TQCConfig(SACConfig):
    """Settings of TQC."""

    algorithm: ClassVar[str] = "TQC"
    algorithm_class: ClassVar[str] = "reef.algorithms.tqc:TQC"
    policy_class: ClassVar[str] = "reef.algorithms.tqc:quantile_actor_critic"
    of_the_network: ClassVar[tuple[str, ...]] = ("policy_model_config", "q_model_config", "n_critics", "n_quantiles")

    n_quantiles: int = setting(25, "Quantiles of the return that each critic learns.", minimum=1)
    n_critics: int = setting(2, "Number of critics; TQC has it in place of twin_q.", minimum=1)
    top_quantiles_to_drop_per_net: int = setting(
        2,
        "Quantiles that the targets leave out for each critic, the largest of all critics together.",
        minimum=0,
    )

    def problems(self) -> Iterator[str]:
        """Yield contradictions between these settings."""
        yield from super().problems()
        if not self.twin_q:
            yield "twin_q=False: TQC has n_critics for it. Leave it at True, and set n_critics=1."
        if self.top_quantiles_to_drop_per_net >= self.n_quantiles:
            yield (
                f"top_quantiles_to_drop_per_net={self.top_quantiles_to_drop_per_net}, n_quantiles={self.n_quantiles}: "
                "the targets need quantiles that are left. Drop fewer than n_quantiles."
            )


class QuantileCritics(Critics):
    """Observations [N, *obs] and actions [N, n] -> quantiles of the return [count, N, quantiles]."""

    def forward(self, obs: Tensor, actions: Tensor) -> Tensor:
        """[count, N, quantiles]."""
        quantiles: Tensor = self.out(self.mlp(self._inputs(obs, actions)))
        return quantiles


class CustomQuantileCritics(CustomCritics):
    """A user's modules, one for each critic, that map observations and actions to (quantiles [N, n], anything)."""

    def _values(self, critic: torch.nn.Module, obs: Tensor, actions: Tensor) -> Tensor:
        quantiles: Tensor = critic(obs, actions.reshape(len(actions), -1))[0]
        return quantiles


class QuantileActorCritic(SoftContinuous):
    """SAC's networks for real actions, with `n_critics` critics of `n_quantiles` outputs."""

    config: TQCConfig

    def make_critics(self, own: Any, actions: int) -> Critics | CustomCritics:
        """From `q_model_config`, and for the rest `model`; `actions`: the number of their elements."""
        count, quantiles = self.config.n_critics, self.config.n_quantiles
        if own.custom_model is None:
            return QuantileCritics(self.observation_layout, own.over(self.config.model), actions, count, quantiles)
        return CustomQuantileCritics([self.custom("q_model_config", quantiles, actions) for _ in range(count)])

    def joint_values(self, critics: Critics | CustomCritics, obs: Tensor, actions: Tensor) -> Tensor:
        """[N], the mean of all quantiles of all critics."""
        quantiles: Tensor = critics(obs, actions)
        return quantiles.mean((0, 2))

    def architecture(self) -> Architecture:
        """Has `n_critics` and `n_quantiles` in place of `twin_q`."""
        architecture = super().architecture()
        del architecture["settings"]["twin_q"]
        architecture["settings"] |= {key: getattr(self.config, key) for key in ("n_critics", "n_quantiles")}
        return architecture


def quantile_actor_critic(config: TQCConfig, observation_space: Space, action_space: Space) -> QuantileActorCritic:
    """Build the networks for these settings; ConfigError unless the actions are a Box with finite bounds."""
    return QuantileActorCritic(
        config, observation_space, action_space, twin_q=config.twin_q, initial_alpha=config.initial_alpha
    )


class TQCLearner(SACLearner):
    """SAC's steps; targets and the loss of the critics are of quantiles."""

    config: TQCConfig
    policy: QuantileActorCritic

    @torch.no_grad()
    def targets(self, minibatch: Columns) -> Tensor:
        """[N, kept] r + gamma^n (z(s', a') - alpha log pi(a'|s')) of the quantiles z that are kept."""
        next_obs = minibatch["next_obs"]
        actions, logp = SquashedGaussian(self.policy.actor(next_obs)).sample(self.noise(len(next_obs)))
        kept = truncated(self.target.network.critics(next_obs, actions), self.config.top_quantiles_to_drop_per_net)
        soft = kept - (self.alpha * logp).unsqueeze(-1)
        rewards, discounts, terminated = (
            minibatch[key].unsqueeze(-1) for key in ("rewards", "discounts", "terminated")
        )
        return td_targets(rewards, discounts, terminated, soft)

    def critic_loss(self, outputs: Tensor, minibatch: Columns) -> Loss:
        """Quantile Huber loss of each critic, weighted if replay is prioritized.

        `outputs`: [critics, N, quantiles]. TD errors are those of the means.
        """
        losses = quantile_huber(outputs, minibatch["targets"]).sum(0)
        loss = weighted_mean(losses, minibatch.get("weights"))
        errors = outputs.detach().mean(-1) - minibatch["targets"].mean(-1)
        stats = {"mean_q": outputs.detach().mean(), "mean_td_error": errors.mean()}
        return Loss(loss, stats, {"td_errors": errors.abs().mean(0)})


def truncated(quantiles: Tensor, drop: int) -> Tensor:
    """Pool the quantiles [critics, N, n] of all critics and leave out the largest `drop` x critics: [N, kept]."""
    critics, rows, count = quantiles.shape
    pooled = quantiles.transpose(0, 1).reshape(rows, critics * count)
    return pooled.sort(-1).values[:, : critics * (count - drop)]


class TQC(SAC):
    """As SAC."""

    config_class = TQCConfig
    learner_class = TQCLearner
