"""The `QPolicy` without autograd and modules: how it acts, its backward pass, and the gradient of DQN's loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from reef.math.td import huber
from reef.nn.dueling import QPolicy, Stream
from reef.nn.fast.layers import ArrayMLP, FastEncoder, LinearParameters, array_layer
from reef.nn.gradients import Backward, Columns, Loss
from reef.nn.layers.activations import FAST_ACTIVATIONS
from reef.types import Array, RecurrentState


class ArrayQNetwork:
    """A `QPolicy` without noise: observations [N, *obs] -> Q-values [N, A]."""

    def __init__(self, policy: QPolicy) -> None:
        """Look up the parameters, whose place in memory `FlatParameters` fixes."""
        self.encoder = ArrayMLP.of(policy.encoder)
        self.advantage = _array_stream(policy.advantage)
        self.value = None if policy.value is None else _array_stream(policy.value)
        self.shape = policy.actions, policy.num_atoms
        self.atoms = policy.atoms.numpy()

    @staticmethod
    def covers(policy: QPolicy) -> bool:
        """Whether its layers are plain and its observations are vectors of numbers, on the CPU."""
        return policy.module is None and not policy.noisy and ArrayMLP.covers(policy.encoder, policy.device)

    @np.errstate(invalid="ignore", over="ignore")
    def __call__(self, obs: Array, state: RecurrentState) -> tuple[Array, RecurrentState]:
        """The Q-values."""
        features = self.encoder(obs)
        logits: Array = self.advantage(features).reshape(len(obs), *self.shape)
        if self.value is not None:
            logits += self.value(features).reshape(len(obs), 1, -1) - logits.mean(1, keepdims=True)
        if len(self.atoms) == 1:
            return logits[:, :, 0], state
        probabilities = np.exp(logits - logits.max(-1, keepdims=True))
        values: Array = probabilities @ self.atoms / probabilities.sum(-1)
        return values, state


def _array_stream(stream: Stream) -> ArrayMLP:
    hidden = [array_layer(layer) for layer in stream.hidden]
    return ArrayMLP(hidden, array_layer(stream.output), FAST_ACTIVATIONS[stream.activation])


class FastStream:
    """A `Stream` of plain linear layers: [N, in] -> [N, out]."""

    def __init__(self, stream: Stream) -> None:
        self.layers = [LinearParameters.of(layer) for layer in (*stream.hidden, stream.output)]
        self.activation = FAST_ACTIVATIONS[stream.activation]

    def forward(self, x: Tensor) -> list[Tensor]:
        """Return the input of every layer, then the output."""
        *hidden, output = self.layers
        inputs = [x]
        for layer in hidden:
            inputs.append(self.activation.of_layer(layer.bias, inputs[-1], layer.weight.t()))
        return [*inputs, output.forward(inputs[-1])]

    def backward(self, saved: list[Tensor], gradient: Tensor) -> Tensor:
        """Return the gradient of the input [N, in] from what `forward` returned and the gradient of the output."""
        *hidden, output = self.layers
        gradient = output.backward(saved[-2], gradient)
        for layer, x, after in zip(reversed(hidden), reversed(saved[:-2]), reversed(saved[1:-1]), strict=True):
            gradient = layer.backward(x, self.activation.gradient(gradient, after))
        return gradient


class FastQNetwork:
    """A `QPolicy` without noise: observations [N, *obs] -> logits [N, A] or [N, A, atoms]."""

    def __init__(self, policy: QPolicy) -> None:
        self.encoder, self.policy = FastEncoder(policy.encoder), policy
        self.advantage = FastStream(policy.advantage)
        self.value = None if policy.value is None else FastStream(policy.value)

    @staticmethod
    def covers(policy: QPolicy) -> bool:
        """Whether its encoder is covered and its streams are plain."""
        return policy.module is None and not policy.noisy and FastEncoder.covers(policy.encoder)

    def forward(self, obs: Tensor) -> tuple[Tensor, Backward]:
        """Return the logits and their backward function."""
        hidden = self.encoder.forward(obs)
        features = hidden[-1][0]
        advantages = self.advantage.forward(features)
        values = None if self.value is None else self.value.forward(features)

        def backward(grad_logits: Tensor) -> None:
            if self.value is None or values is None:
                grad_features = self.advantage.backward(advantages, grad_logits.flatten(1))
            else:
                grad_advantages = grad_logits - grad_logits.mean(1, keepdim=True)
                grad_features = self.advantage.backward(advantages, grad_advantages.flatten(1))
                grad_values = grad_logits.sum(1, keepdim=self.policy.num_atoms == 1)
                grad_features += self.value.backward(values, grad_values)
            self.encoder.stack.backward(hidden, grad_features.unsqueeze(0))

        return self.policy.dueling(advantages[-1], None if values is None else values[-1]), backward


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
