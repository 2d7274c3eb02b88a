"""The `ActorCritic` without autograd and modules: how it acts, its backward pass, and the gradient of PPO's loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reef.nn.distributions import Categorical, DiagonalGaussian, DistributionMaker, LeafDistribution
from reef.nn.fast.layers import ArrayMLP, FastEncoder, LinearParameters
from reef.nn.gradients import Backward, Columns, Loss
from reef.nn.policies import ActorCritic, ActorPolicy
from reef.types import Array, RecurrentState


class ArrayActor:
    """An actor, with or without a critic: observations [N, *obs] -> distribution inputs [N, D]."""

    def __init__(self, policy: ActorPolicy) -> None:
        """Look up the parameters, whose place in memory `FlatParameters` fixes."""
        self.mlp = ArrayMLP.of(policy.encoder, policy.pi)
        self.log_std = None if policy.log_std is None else policy.log_std.detach().numpy()

    @staticmethod
    def covers(policy: ActorPolicy) -> bool:
        """Whether the policy is a perceptron for vectors of numbers, on the CPU."""
        return ArrayMLP.covers(policy.encoder, policy.device)

    # No warnings, like torch: the check of the observations names the source of NaN.
    @np.errstate(invalid="ignore", over="ignore")
    def __call__(self, obs: Array, state: RecurrentState) -> tuple[Array, RecurrentState]:
        """The distribution inputs."""
        inputs = self.mlp(obs)
        if self.log_std is not None:
            means, inputs = inputs, np.empty((len(obs), 2 * inputs.shape[-1]), np.float32)
            inputs[:, : means.shape[-1]] = means
            inputs[:, means.shape[-1] :] = self.log_std
        return inputs, state


class FastActorCritic:
    """An `ActorCritic`: observations [N, *obs] -> distribution inputs [N, D] and values [N]."""

    def __init__(self, policy: ActorCritic) -> None:
        self.encoder = FastEncoder(policy.encoder)
        self.pi, self.vf = LinearParameters.of(policy.pi), LinearParameters.of(policy.vf)
        self.log_std = policy.log_std
        self.with_log_std = policy.with_log_std

    @staticmethod
    def covers(policy: ActorCritic) -> bool:
        """Whether its encoder is covered."""
        return FastEncoder.covers(policy.encoder)

    def forward(self, obs: Tensor) -> tuple[tuple[Tensor, Tensor], Backward]:
        """Return the outputs and their backward function."""
        hidden = self.encoder.forward(obs)
        actor, critic = (branches := hidden[-1].unbind())[0], branches[-1]
        outputs = self.pi.forward(actor), self.vf.forward(critic).squeeze(-1)

        def backward(grad_inputs: Tensor, grad_values: Tensor) -> None:
            grad_outputs = grad_inputs if self.log_std is None else grad_inputs[:, : len(self.pi.bias)]
            features = torch.empty_like(hidden[-1])
            self.vf.backward(critic, grad_values.unsqueeze(-1), out=features[-1])
            of_actor = self.pi.backward(actor, grad_outputs, out=None if len(branches) == 1 else features[0])
            if len(branches) == 1:
                features += of_actor
            if self.log_std is not None:
                torch.sum(grad_inputs[:, len(self.pi.bias) :], 0, out=self.log_std.grad)
            self.encoder.stack.backward(hidden, features)

        return (self.with_log_std(outputs[0]), outputs[1]), backward


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
    value = learner.weighted_sum(stats)
    if old is not None:
        stats["kl"] = old.kl(dist).mean()
        value = value + learner.kl_penalty.coeff * stats["kl"]

    share = 1 / len(values)  # weight of a row in the means
    grad_logp, grad_square = free * (free <= bound), 2 * error
    if limit is not None:
        grad_square = grad_square * (square <= limit)
    weights = -share * grad_logp, -share * learner.entropy_coeff, share * learner.kl_penalty.coeff
    grad_inputs = DISTRIBUTIONS[type(dist)](dist, actions, *weights, old)
    return Loss(value, stats), (grad_inputs, learner.vf_loss_coeff * share * grad_square)


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
