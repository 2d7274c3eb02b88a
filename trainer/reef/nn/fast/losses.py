"""Losses with their derivatives by the network's outputs, written by hand.

Each function takes the learner, the network's outputs and a minibatch, and returns the same `Loss` as the learner's own
`loss` and the gradient of each output. Call them only in inference mode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from reef.math.td import huber
from reef.nn.distributions import Categorical, DiagonalGaussian, DistributionMaker, LeafDistribution
from reef.nn.gradients import Columns, Loss

LossGradient = Callable[[Any, Any, Columns], tuple[Loss, tuple[Tensor, ...]]]


def ppo(learner: Any, outputs: tuple[Tensor, Tensor], minibatch: Columns) -> tuple[Loss, tuple[Tensor, Tensor]]:
    """`PPOLearner.loss`, with the gradients of the distribution inputs [N, D] and the values [N]."""
    config, actions, advantages = learner.config, minibatch["actions"], minibatch["advantages"]
    dist_inputs, values = outputs
    make = learner.policy.dist_class
    dist = make(dist_inputs)
    old = make(minibatch["action_dist_inputs"]) if config.kl_coeff > 0.0 else None

    ratio = torch.exp(dist.logp(actions) - minibatch["action_logp"])
    free = advantages * ratio
    bound = advantages * ratio.clamp(1 - config.clip_param, 1 + config.clip_param)
    error = values - minibatch["value_targets"]
    square, limit = error * error, config.vf_clip_param

    stats = {
        "policy_loss": -torch.min(free, bound).mean(),
        "vf_loss": (square if limit is None else square.clamp(max=limit)).mean(),
        "entropy": dist.entropy().mean(),
    }
    vf_loss_coeff = config.vf_loss_coeff if config.use_critic else 0.0
    value = stats["policy_loss"] + vf_loss_coeff * stats["vf_loss"] - learner.entropy_coeff * stats["entropy"]
    if old is not None:
        stats["kl"] = old.kl(dist).mean()
        value = value + learner.kl_coeff * stats["kl"]

    share = 1 / len(values)  # weight of a row in the means
    grad_logp, grad_square = free * (free <= bound), 2 * error
    if limit is not None:
        grad_square = grad_square * (square <= limit)
    weights = -share * grad_logp, -share * learner.entropy_coeff, share * learner.kl_coeff
    grad_inputs = DISTRIBUTIONS[type(dist)](dist, actions, *weights, old)
    return Loss(value, stats), (grad_inputs, vf_loss_coeff * share * grad_square)


def dqn(learner: Any, logits: Tensor, minibatch: Columns) -> tuple[Loss, tuple[Tensor]]:
    """`DQNLearner.loss`, with the gradient of the logits [N, A] or [N, A, atoms]."""
    actions, targets, weights = minibatch["actions"], minibatch["targets"], minibatch.get("weights")
    places = actions.view(-1, *[1] * (logits.dim() - 1)).expand(-1, 1, *logits.shape[2:])  # in `logits`
    chosen = logits.gather(1, places).squeeze(1)
    if logits.dim() == 2:
        losses, td_errors = huber(chosen, targets), chosen - targets
        grad_chosen = td_errors.clamp(-1.0, 1.0)
    else:
        td_errors = losses = -(targets * torch.log_softmax(chosen, -1)).sum(-1)
        grad_chosen = torch.softmax(chosen, -1) * targets.sum(-1, keepdim=True) - targets
    value = losses.mean() if weights is None else (losses * weights).mean()
    grad_chosen = grad_chosen / len(actions)  # weight of a row in the mean
    if weights is not None:
        grad_chosen = grad_chosen * weights.view(-1, *[1] * (grad_chosen.dim() - 1))
    gradient = torch.zeros_like(logits).scatter_(1, places, grad_chosen.unsqueeze(1).to(logits.dtype))
    mean_q = learner.policy.expected(chosen).mean()
    return Loss(value, {"mean_q": mean_q}, {"td_errors": td_errors}), (gradient,)


def categorical(
    dist: Categorical,
    actions: Tensor,  # [N]
    grad_logp: Tensor,  # [N]
    grad_entropy: Tensor,  # []
    grad_kl: Tensor,  # []
    old: Categorical | None,  # the distribution in KL(old || dist); None omits this term
) -> Tensor:  # [N, A]
    """The gradient of sum(grad_logp logp + grad_entropy entropy + grad_kl kl) by the logits."""
    weight = grad_logp.unsqueeze(-1)
    surprise = dist.expected_log_prob.unsqueeze(-1) - dist.log_probs
    gradient = dist.probs * (grad_entropy * surprise - weight)
    if old is not None:
        gradient += grad_kl * (dist.probs - old.probs)
    return gradient.scatter_add_(-1, actions.long().unsqueeze(-1), weight)


def gaussian(
    dist: DiagonalGaussian,
    actions: Tensor,  # [N, n]
    grad_logp: Tensor,  # [N]
    grad_entropy: Tensor,  # []
    grad_kl: Tensor,  # []
    old: DiagonalGaussian | None,
) -> Tensor:  # [N, 2 n]
    """The same gradient by the means and log standard deviations."""
    precision = torch.exp(-2 * dist.log_std)
    error, weight = actions.reshape(dist.mean.shape) - dist.mean, grad_logp.unsqueeze(-1)
    grad_mean = weight * error * precision
    grad_log_std = weight * (error * error * precision - 1) + grad_entropy
    if old is not None:
        drift = dist.mean - old.mean
        grad_mean += grad_kl * drift * precision
        grad_log_std += grad_kl * (1 - (torch.exp(2 * old.log_std) + drift * drift) * precision)
    return torch.cat([grad_mean, grad_log_std], dim=-1)


DISTRIBUTIONS: dict[type[LeafDistribution], Callable[..., Tensor]] = {
    Categorical: categorical,
    DiagonalGaussian: gaussian,
}


def has_one_of_these(policy: Any) -> bool:
    """Whether the policy's action distribution has a gradient here."""
    maker: DistributionMaker = policy.dist_class
    return not maker.joint and not maker.reshaped and maker.parts[0].make in DISTRIBUTIONS


# By the full name of the method, so that a subclass with its own loss does not match.
LOSSES: dict[str, tuple[LossGradient, Callable[[Any], bool]]] = {
    "reef.algorithms.ppo.PPOLearner.loss": (ppo, has_one_of_these),
    "reef.algorithms.dqn.DQNLearner.loss": (dqn, lambda _: True),
}
