"""Policies in NumPy, for the few observations that are acted on at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from reef.nn.dueling import QPolicy, Stream
from reef.nn.fast.activations import FAST_ACTIVATIONS
from reef.nn.layers.encoders import Encoder
from reef.nn.policies import ActorCritic, Policy
from reef.types import Array

ONE_THREAD = 2**18  # products up to which OpenBLAS takes no second thread, which would be in the way of torch's
MOST_BLOCKS = 8  # of rows with so many products each; beyond, torch catches up

Layer = tuple[Tensor, Tensor]  # weight [in, out] and bias [out]


class ArrayMLP:
    """[N, in] -> [N, out] by parameters on the CPU that stay where they are in memory: hidden layers, then a last one.

    For a few rows a call of torch costs more than its arithmetic, and pushes the environments' code out of the caches.
    """

    def __init__(self, hidden: Sequence[Layer], last: Layer | None, activate: Callable[[Array], Array]) -> None:
        """`activate` overwrites its argument; the `last` layer, where there is one, has no activation."""
        self.hidden = [(weight.numpy(), bias.numpy()) for weight, bias in hidden]
        self.last = None if last is None else (last[0].numpy(), last[1].numpy())
        self.activate = activate

    @property
    def largest(self) -> int:
        """Numbers of the largest weight, at least 1."""
        return max([1, *(weight.size for weight, _ in (*self.hidden, *([self.last] if self.last else [])))])

    def __call__(self, x: Array) -> Array:
        """[N, in] -> [N, out]."""
        for weight, bias in self.hidden:
            x = x @ weight
            x += bias
            x = self.activate(x)
        if self.last is not None:
            weight, bias = self.last
            x = x @ weight
            x += bias
        return x


class ArrayActor(ABC):
    """Observations [N, *obs] -> distribution inputs [N, D], some rows at a time."""

    def __init__(self, *parts: ArrayMLP) -> None:
        # rows for which the largest product is left to one thread
        self.block = ONE_THREAD // max(part.largest for part in parts)
        self.most_rows = MOST_BLOCKS * self.block

    def __call__(self, obs: Array) -> Array:
        """`obs` has no more than `most_rows`."""
        with np.errstate(invalid="ignore", over="ignore"):  # as torch, which is silent: whoever checks names the source
            if len(obs) <= self.block:
                return self.forward(obs)
            blocks = [self.forward(obs[start : start + self.block]) for start in range(0, len(obs), self.block)]
            return np.concatenate(blocks)

    @abstractmethod
    def forward(self, obs: Array) -> Array:
        """One block of rows."""


class ArrayActorCritic(ArrayActor):
    """The actor of an `ActorCritic`."""

    def __init__(self, policy: ActorCritic) -> None:
        """Look up the parameters, which `FlatParameters` keeps where they are in memory."""
        self.mlp = ArrayMLP(_encoder_layers(policy.encoder), _layer(policy.pi), _activation(policy.encoder))
        self.log_std = None if policy.log_std is None else policy.log_std.detach().numpy()
        super().__init__(self.mlp)

    @staticmethod
    def covers(policy: ActorCritic) -> bool:
        """Whether it is a perceptron of a vector of numbers, on the CPU."""
        return _is_covered(policy.encoder, policy)

    def forward(self, obs: Array) -> Array:
        """One block of rows."""
        inputs = self.mlp(obs)
        if self.log_std is not None:
            means, inputs = inputs, np.empty((len(obs), 2 * inputs.shape[-1]), np.float32)
            inputs[:, : means.shape[-1]] = means
            inputs[:, means.shape[-1] :] = self.log_std
        return inputs


class ArrayQNetwork(ArrayActor):
    """The Q-values of a `QPolicy` without noise."""

    def __init__(self, policy: QPolicy) -> None:
        """Look up the parameters, which `FlatParameters` keeps where they are in memory."""
        activate = _activation(policy.encoder)
        self.encoder = ArrayMLP(_encoder_layers(policy.encoder), None, activate)
        self.advantage = _stream(policy.advantage, activate)
        self.value = None if policy.value is None else _stream(policy.value, activate)
        self.shape = policy.actions, policy.num_atoms
        self.atoms = policy.atoms.numpy()
        super().__init__(self.encoder, self.advantage, *([self.value] if self.value else []))

    @staticmethod
    def covers(policy: QPolicy) -> bool:
        """Whether its layers are plain, and behind a vector of numbers, on the CPU."""
        return policy.module is None and not policy.noisy and _is_covered(policy.encoder, policy)

    def forward(self, obs: Array) -> Array:
        """One block of rows."""
        features = self.encoder(obs)
        logits: Array = self.advantage(features).reshape(len(obs), *self.shape)
        if self.value is not None:
            logits += self.value(features).reshape(len(obs), 1, -1) - logits.mean(1, keepdims=True)
        if len(self.atoms) == 1:
            return logits[:, :, 0]
        probabilities = np.exp(logits - logits.max(-1, keepdims=True))
        values: Array = probabilities @ self.atoms / probabilities.sum(-1)
        return values


def _is_covered(encoder: Encoder, policy: Policy) -> bool:
    known = encoder.mlp.activation in FAST_ACTIVATIONS
    return type(encoder) is Encoder and encoder.plain and known and policy.device.type == "cpu"


def _encoder_layers(encoder: Encoder) -> list[Layer]:
    """Those of its first branch, which acts."""
    return [(layer.weight.detach()[0], layer.bias.detach()[0, 0]) for layer in encoder.mlp.layers]


def _activation(encoder: Encoder) -> Callable[[Array], Array]:
    return FAST_ACTIVATIONS[encoder.mlp.activation].of_array


def _stream(stream: Stream, activate: Callable[[Array], Array]) -> ArrayMLP:
    return ArrayMLP([_layer(layer) for layer in stream.hidden], _layer(stream.output), activate)


def _layer(layer: Any) -> Layer:
    return layer.weight.detach().t(), layer.bias.detach()


ACTORS: dict[type, Any] = {ActorCritic: ArrayActorCritic, QPolicy: ArrayQNetwork}
