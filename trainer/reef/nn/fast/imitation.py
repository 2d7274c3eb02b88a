"""The `ActorPolicy` without autograd and modules, and the gradients of the losses of BC and MARWIL.

Those are for one categorical action, and to the last bit those of autograd.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from reef.nn.distributions import Categorical, DistributionMaker
from reef.nn.fast.layers import FastEncoder, LinearParameters
from reef.nn.gradients import Backward, Columns, Loss
from reef.nn.policies import ActorPolicy


class FastActorPolicy:
    """An `ActorPolicy`: observations [N, *obs] -> distribution inputs [N, D]."""

    def __init__(self, policy: ActorPolicy) -> None:
        self.encoder, self.pi = FastEncoder(policy.encoder), LinearParameters.of(policy.pi)
        self.log_std, self.with_log_std = policy.log_std, policy.with_log_std

    @staticmethod
    def covers(policy: ActorPolicy) -> bool:
        """Whether its encoder is covered."""
        return FastEncoder.covers(policy.encoder)

    def forward(self, obs: Tensor) -> tuple[Tensor, Backward]:
        """Return the output and its backward function."""
        hidden = self.encoder.forward(obs)
        (features,) = hidden[-1].unbind()

        def backward(grad_inputs: Tensor) -> None:
            if self.log_std is not None:
                grad_inputs, grad_log_std = grad_inputs.tensor_split(2, dim=1)
                torch.sum(grad_log_std, 0, out=self.log_std.grad)
            self.encoder.stack.backward(hidden, self.pi.backward(features, grad_inputs).unsqueeze(0))

        return self.with_log_std(self.pi.forward(features)), backward


def bc(learner: Any, dist_inputs: Tensor, minibatch: Columns) -> tuple[Loss, tuple[Tensor]]:
    """`BCLearner.loss`, with the gradient of the distribution inputs [N, D]."""
    dist, actions = Categorical(dist_inputs), minibatch["actions"]
    policy_loss = -dist.logp(actions).mean()
    return Loss(policy_loss, {"policy_loss": policy_loss}), (grad_inputs(dist, actions, -1 / len(actions)),)


def marwil(learner: Any, outputs: tuple[Tensor, Tensor], minibatch: Columns) -> tuple[Loss, tuple[Tensor, Tensor]]:
    """`MARWILLearner.loss`, with the gradients of the distribution inputs [N, D] and the values [N]."""
    dist_inputs, values = outputs
    if not learner.config.beta:
        loss, (gradient,) = bc(learner, dist_inputs, minibatch)
        return loss, (gradient, torch.zeros_like(values))
    dist, actions, vf_coeff = Categorical(dist_inputs), minibatch["actions"], learner.config.vf_coeff
    errors = minibatch["returns"] - values
    square, weights = errors.square(), learner.action_weights(errors)
    policy_loss, vf_loss = -(weights * dist.logp(actions)).mean(), 0.5 * square.mean()
    stats = {"policy_loss": policy_loss, "vf_loss": vf_loss, "mean_square_advantage": square.mean()}
    # rounded as autograd does
    grad_values = (errors.new_tensor(-0.5 * vf_coeff) / len(values)) * (2 * errors)
    gradients = grad_inputs(dist, actions, (-1 / len(values)) * weights), grad_values
    return Loss(policy_loss + vf_coeff * vf_loss, stats), gradients


def grad_inputs(
    dist: Categorical,
    actions: Tensor,  # [N]
    grad_logp: Tensor | float,  # [N], or the same for all rows
) -> Tensor:  # [N, A]
    """The gradient of sum(grad_logp logp) by the logits."""
    log_probs, index = dist.log_probs, actions.long().unsqueeze(-1)
    by_row = grad_logp.unsqueeze(-1) if isinstance(grad_logp, Tensor) else grad_logp
    chosen = torch.zeros_like(log_probs).scatter_(-1, index, by_row)
    return torch._log_softmax_backward_data(chosen, log_probs, -1, log_probs.dtype)


def is_categorical(policy: Any) -> bool:
    """Whether an action is a single index."""
    maker: DistributionMaker = policy.dist_class
    return not maker.joint and not maker.reshaped and maker.parts[0].make is Categorical
