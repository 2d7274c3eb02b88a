"""Networks with handwritten backward passes: from the gradients of their outputs to those of their parameters."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from reef.nn.dueling import QPolicy, Stream
from reef.nn.fast.activations import FAST_ACTIVATIONS
from reef.nn.fast.layers import FastStack, LinearParameters
from reef.nn.layers.encoders import Encoder
from reef.nn.policies import ActorCritic

Backward = Callable[..., None]  # takes the gradients of the outputs, overwrites those of the parameters


class FastEncoder:
    """An `Encoder` of vectors: observations [N, *obs] -> features [branches, N, F]."""

    def __init__(self, encoder: Encoder) -> None:
        self.stack = FastStack(encoder.mlp)
        self.features = None if encoder.plain else encoder.features[0]

    def forward(self, obs: Tensor) -> list[Tensor]:
        """As `FastStack.forward`."""
        return self.stack.forward(obs if self.features is None else self.features(obs))

    @staticmethod
    def covers(encoder: Encoder) -> bool:
        """Whether it is exactly an `Encoder`, with hidden layers and without layers before them."""
        known = encoder.mlp.activation in FAST_ACTIVATIONS
        return type(encoder) is Encoder and known and not encoder.has_image and len(encoder.mlp.layers) > 0


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
            grad_actor = self.pi.backward(actor, grad_outputs)
            grad_critic = self.vf.backward(critic, grad_values.unsqueeze(-1))
            if self.log_std is not None:
                torch.sum(grad_inputs[:, len(self.pi.bias) :], 0, out=self.log_std.grad)
            shared = len(branches) == 1
            features = (grad_actor + grad_critic).unsqueeze(0) if shared else torch.stack([grad_actor, grad_critic])
            self.encoder.stack.backward(hidden, features)

        return (self.with_log_std(outputs[0]), outputs[1]), backward


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
            inputs.append(self.activation.in_place(layer.forward(inputs[-1])))
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
