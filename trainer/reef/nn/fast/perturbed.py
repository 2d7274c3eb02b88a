"""The `PerturbedPolicy` without modules: how it acts, with one perceptron or with another in each column."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from reef.nn.fast.layers import ArrayMLP
from reef.nn.layers.encoders import EncoderWithHead
from reef.nn.perturbed import PerturbedPolicy
from reef.types import Array, RecurrentState


class ArrayPerturbedActor:
    """Observations [N, *obs] -> distribution inputs [N, D]."""

    def __init__(self, policy: PerturbedPolicy) -> None:
        """Look up the parameters, whose place in memory `FlatParameters` fixes."""
        actor: Any = policy.actor
        self.policy, self.mlp = policy, ArrayMLP.of(actor.encoder, actor.out)
        self._perturbed: Mapping[str, Tensor] | None = None
        # Of each column, while the policy is perturbed: weight [B, in, out] and bias [B, 1, out].
        self._layers: list[tuple[Array, Array]] = []

    @staticmethod
    def covers(policy: PerturbedPolicy) -> bool:
        """Whether its network is a perceptron of vectors of numbers, on the CPU."""
        return type(policy.actor) is EncoderWithHead and ArrayMLP.covers(policy.actor.encoder, policy.device)

    @np.errstate(invalid="ignore", over="ignore")
    def __call__(self, obs: Array, state: RecurrentState) -> tuple[Array, RecurrentState]:
        """The inputs; while the policy is perturbed N is the number of columns B."""
        perturbed = self.policy.column_weights
        if perturbed is None:
            return self.mlp(obs), state
        if perturbed is not self._perturbed:
            self._perturbed, self._layers = perturbed, self._layers_of(perturbed)
        *hidden, (weight, bias) = self._layers
        x = obs[:, None]
        for own_weight, own_bias in hidden:
            x = x @ own_weight
            x += own_bias
            x = self.mlp.activation.of_array(x)
        inputs: Array = x @ weight
        inputs += bias
        return inputs[:, 0], state

    def _layers_of(self, weights: Mapping[str, Tensor]) -> list[tuple[Array, Array]]:
        places = [f"encoder.mlp.layers.{index}" for index in range(self.mlp.depth)]
        hidden = [(weights[f"{place}.weight"][:, 0], weights[f"{place}.bias"][:, 0]) for place in places]
        last = weights["out.weight"].transpose(1, 2).contiguous(), weights["out.bias"][:, None]
        return [(weight.numpy(), bias.numpy()) for weight, bias in (*hidden, last)]
