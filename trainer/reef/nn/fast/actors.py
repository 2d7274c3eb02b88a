"""Acting without torch modules: NumPy for the few observations of one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from reef.nn.dueling import QPolicy, Stream
from reef.nn.fast.activations import FAST_ACTIVATIONS, FastActivation
from reef.nn.layers.encoders import Encoder
from reef.nn.layers.recurrent import RecurrentCell
from reef.nn.policies import ActorCritic, Policy
from reef.nn.recurrent import RecurrentActorCritic
from reef.types import Array, RecurrentState

# Largest number of multiplications for which OpenBLAS uses a single thread; more threads would disturb torch's.
ONE_THREAD = 2**18
# Maximum number of row blocks, and minimum rows per block for using a second one; for more rows torch is faster.
MOST_BLOCKS, WIDE_BLOCK = 2, 8

Layer = tuple[Tensor, Tensor]  # weight [in, out] and bias [out]


class ArrayMLP:
    """[N, in] -> [N, out] with parameters on the CPU at a fixed place in memory: hidden layers, then an output layer.

    For a few rows, calls of torch cost more than the arithmetic, and evict the environments' code from the caches.
    """

    def __init__(self, hidden: Sequence[Layer], last: Layer | None, activation: FastActivation) -> None:
        """The `last` layer, if there is one, has no activation."""
        self.layers, self.depth, self.activation = [*hidden, *([last] if last else [])], len(hidden), activation
        self.arrays = [(weight.numpy(), bias.numpy()) for weight, bias in self.layers]
        self.block = ONE_THREAD // max([1, *(weight.numel() for weight, _ in self.layers)])  # rows
        self.few_rows = self.block * (MOST_BLOCKS if self.block >= WIDE_BLOCK else 1)

    def __call__(self, x: Array) -> Array:
        """[N, in] -> [N, out]."""
        if len(x) > self.few_rows:
            return self._in_torch(torch.from_numpy(x)).numpy()
        if len(x) <= self.block:
            return self._in_numpy(x)
        blocks = [self._in_numpy(x[start : start + self.block]) for start in range(0, len(x), self.block)]
        return np.concatenate(blocks)

    def _in_numpy(self, x: Array) -> Array:
        for index, (weight, bias) in enumerate(self.arrays):
            x = x @ weight
            x += bias
            if index < self.depth:
                x = self.activation.of_array(x)
        return x

    def _in_torch(self, x: Tensor) -> Tensor:
        for index, (weight, bias) in enumerate(self.layers):
            x = torch.addmm(bias, x, weight)
            if index < self.depth:
                x = self.activation.in_place(x)
        return x


class ArrayActorCritic:
    """The actor of an `ActorCritic`: observations [N, *obs] -> distribution inputs [N, D]."""

    def __init__(self, policy: ActorCritic) -> None:
        """Look up the parameters, whose place in memory `FlatParameters` fixes."""
        self.mlp = ArrayMLP(_encoder_layers(policy.encoder), _layer(policy.pi), _activation(policy.encoder))
        self.log_std = None if policy.log_std is None else policy.log_std.detach().numpy()

    @staticmethod
    def covers(policy: ActorCritic) -> bool:
        """Whether the policy is a perceptron for vectors of numbers, on the CPU."""
        return _is_covered(policy.encoder, policy)

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


class ArrayQNetwork:
    """A `QPolicy` without noise: observations [N, *obs] -> Q-values [N, A]."""

    def __init__(self, policy: QPolicy) -> None:
        """Look up the parameters, whose place in memory `FlatParameters` fixes."""
        activate = _activation(policy.encoder)
        self.encoder = ArrayMLP(_encoder_layers(policy.encoder), None, activate)
        self.advantage = _stream(policy.advantage, activate)
        self.value = None if policy.value is None else _stream(policy.value, activate)
        self.shape = policy.actions, policy.num_atoms
        self.atoms = policy.atoms.numpy()

    @staticmethod
    def covers(policy: QPolicy) -> bool:
        """Whether its layers are plain and its observations are vectors of numbers, on the CPU."""
        return policy.module is None and not policy.noisy and _is_covered(policy.encoder, policy)

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


class ArrayRecurrentActorCritic:
    """The actor of a `RecurrentActorCritic` with an LSTM or a GRU, one step of N columns."""

    def __init__(self, policy: RecurrentActorCritic) -> None:
        """Look up the parameters, whose place in memory `FlatParameters` fixes."""
        self.encoder = ArrayMLP(_encoder_layers(policy.encoder), None, _activation(policy.encoder))
        self.out = ArrayMLP([], _layer(policy.pi), _activation(policy.encoder))
        cell: Any = policy.memory.cell
        self.step = self._lstm if isinstance(cell, nn.LSTM) else self._gru
        self.of_input, self.of_hidden = (
            (weight.detach().t().numpy(), bias.detach().numpy())
            for weight, bias in ((cell.weight_ih_l0, cell.bias_ih_l0), (cell.weight_hh_l0, cell.bias_hh_l0))
        )

    @staticmethod
    def covers(policy: RecurrentActorCritic) -> bool:
        """Whether it reads only vectors of numbers, on the CPU, and its memory is a recurrent cell."""
        reads_more = policy.prev_actions or policy.prev_rewards
        return type(policy.memory) is RecurrentCell and not reads_more and _is_covered(policy.encoder, policy)

    @np.errstate(invalid="ignore", over="ignore")
    def __call__(self, obs: Array, state: RecurrentState) -> tuple[Array, RecurrentState]:
        """The distribution inputs, and the next recurrent state."""
        after = self.step(self.encoder(obs), **state)
        return self.out(after["h"]), after

    def _lstm(self, x: Array, h: Array, c: Array) -> RecurrentState:
        gates = self._of(x, self.of_input)
        gates += self._of(h, self.of_hidden)
        size = h.shape[1]
        new = np.tanh(gates[:, 2 * size : 3 * size])
        opened = _sigmoid(gates)  # one call for three gates
        c = opened[:, size : 2 * size] * c + opened[:, :size] * new
        return {"h": opened[:, 3 * size :] * np.tanh(c), "c": c}

    def _gru(self, x: Array, h: Array) -> RecurrentState:
        reset, update, new = np.split(self._of(x, self.of_input), 3, axis=1)
        reset_h, update_h, new_h = np.split(self._of(h, self.of_hidden), 3, axis=1)
        new = np.tanh(new + _sigmoid(reset + reset_h) * new_h)
        update = _sigmoid(update + update_h)
        return {"h": (1 - update) * new + update * h}

    @staticmethod
    def _of(x: Array, layer: tuple[Array, Array]) -> Array:
        product: Array = x @ layer[0]
        product += layer[1]
        return product


def _sigmoid(x: Array) -> Array:
    return 0.5 + 0.5 * np.tanh(0.5 * x)


def _is_covered(encoder: Encoder, policy: Policy) -> bool:
    known = encoder.mlp.activation in FAST_ACTIVATIONS
    return type(encoder) is Encoder and encoder.plain and known and policy.device.type == "cpu"


def _encoder_layers(encoder: Encoder) -> list[Layer]:
    """The layers of the first branch, which acts."""
    return [(layer.weight.detach()[0], layer.bias.detach()[0, 0]) for layer in encoder.mlp.layers]


def _activation(encoder: Encoder) -> FastActivation:
    return FAST_ACTIVATIONS[encoder.mlp.activation]


def _stream(stream: Stream, activate: FastActivation) -> ArrayMLP:
    return ArrayMLP([_layer(layer) for layer in stream.hidden], _layer(stream.output), activate)


def _layer(layer: Any) -> Layer:
    return layer.weight.detach().t(), layer.bias.detach()


ACTORS: dict[type, Any] = {
    ActorCritic: ArrayActorCritic,
    QPolicy: ArrayQNetwork,
    RecurrentActorCritic: ArrayRecurrentActorCritic,
}
