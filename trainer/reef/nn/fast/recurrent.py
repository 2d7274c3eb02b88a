"""A `RecurrentActorCritic` without autograd and modules: one step when acting, sequences with a backward pass."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reef.nn.fast.layers import ArrayMLP, FastEncoder, LinearParameters, array_layer
from reef.nn.gradients import Backward
from reef.nn.layers.recurrent import RecurrentCell
from reef.nn.recurrent import RecurrentActorCritic
from reef.types import Array, RecurrentState


class ArrayRecurrentActorCritic:
    """The actor of a `RecurrentActorCritic` with an LSTM or a GRU, one step of N columns."""

    def __init__(self, policy: RecurrentActorCritic) -> None:
        """Look up the parameters, whose place in memory `FlatParameters` fixes."""
        self.encoder = ArrayMLP.of(policy.encoder)
        self.out = ArrayMLP([], array_layer(policy.pi), self.encoder.activation)
        cell: Any = policy.memory.cell
        self.step = self._lstm if isinstance(cell, nn.LSTM) else self._gru
        self.of_input, self.of_hidden = (
            ArrayMLP([], (weight.detach().t(), bias.detach()), self.encoder.activation)
            for weight, bias in ((cell.weight_ih_l0, cell.bias_ih_l0), (cell.weight_hh_l0, cell.bias_hh_l0))
        )

    @staticmethod
    def covers(policy: RecurrentActorCritic) -> bool:
        """Whether it reads only vectors of numbers, on the CPU, and its memory is a recurrent cell."""
        if type(policy.memory) is not RecurrentCell or policy.prev_actions or policy.prev_rewards:
            return False
        return ArrayMLP.covers(policy.encoder, policy.device)

    @np.errstate(invalid="ignore", over="ignore")
    def __call__(self, obs: Array, state: RecurrentState) -> tuple[Array, RecurrentState]:
        """The distribution inputs, and the next recurrent state."""
        after = self.step(self.encoder(obs), **state)
        return self.out(after["h"]), after

    def _lstm(self, x: Array, h: Array, c: Array) -> RecurrentState:
        gates = self.of_input(x)
        gates += self.of_hidden(h)
        size = h.shape[1]
        new = np.tanh(gates[:, 2 * size : 3 * size])
        opened = _sigmoid(gates)  # one call for three gates
        c = opened[:, size : 2 * size] * c + opened[:, :size] * new
        return {"h": opened[:, 3 * size :] * np.tanh(c), "c": c}

    def _gru(self, x: Array, h: Array) -> RecurrentState:
        reset, update, new = np.split(self.of_input(x), 3, axis=1)
        reset_h, update_h, new_h = np.split(self.of_hidden(h), 3, axis=1)
        new = np.tanh(new + _sigmoid(reset + reset_h) * new_h)
        update = _sigmoid(update + update_h)
        return {"h": (1 - update) * new + update * h}


def _sigmoid(x: Array) -> Array:
    return 0.5 + 0.5 * np.tanh(0.5 * x)


class UnrolledLSTM(NamedTuple):
    """What an LSTM computed for L steps of S sequences."""

    # [L, S, in]
    x: Tensor
    # [L, S, 4, H] after their activations: input, forget, cell, output
    gates: Tensor
    # [L + 1, S, H] each: before the first step and after each step
    h: Tensor
    c: Tensor
    # [L, S, H]
    tanh_c: Tensor
    # [L, S, 1] 0 where an episode starts with this step, else 1; and a list by step, with None where it is 1 everywhere
    keep: Tensor
    kept: list[Tensor | None]


class FastLSTM:
    """The `nn.LSTM` of a `RecurrentCell`, in the notation of Hochreiter and Schmidhuber 1997 with a forget gate."""

    def __init__(self, cell: Any) -> None:
        """Look up the parameters, whose place in memory `FlatParameters` fixes."""
        self.of_input, self.of_hidden = (
            LinearParameters(weight.detach(), bias.detach(), weight.grad, bias.grad)
            for weight, bias in ((cell.weight_ih_l0, cell.bias_ih_l0), (cell.weight_hh_l0, cell.bias_hh_l0))
        )
        self.size = cell.hidden_size

    def forward(
        self,
        x: Tensor,  # [L, S, in]
        begins: Tensor,  # [S, L] bool: an episode starts with this step
        h: Tensor,  # [S, H] before the first step
        c: Tensor,  # [S, H]
    ) -> UnrolledLSTM:
        """Compute the sequences step by step, resetting the state where an episode starts."""
        steps, count, _ = x.shape
        begun = begins.any(0).tolist()
        keep = (~begins).to(x.dtype).t().unsqueeze(-1)
        kept = [own if any_begins else None for own, any_begins in zip(keep, begun, strict=True)]
        gates = F.linear(x, self.of_input.weight, self.of_input.bias + self.of_hidden.bias)
        hs, cs = x.new_empty(steps + 1, count, self.size), x.new_empty(steps + 1, count, self.size)
        tanh_c = torch.empty_like(hs[1:])
        hs[0], cs[0] = h, c
        weight = self.of_hidden.weight.t()
        for t, (own, keeping) in enumerate(zip(gates, kept, strict=True)):
            h, c = (hs[t], cs[t]) if keeping is None else (hs[t] * keeping, cs[t] * keeping)
            own.addmm_(h, weight)
            new_in, keep_in, new, out = own.view(count, 4, self.size).unbind(1)
            own[:, : 2 * self.size].sigmoid_()
            new.tanh_()
            out.sigmoid_()
            torch.mul(keep_in, c, out=cs[t + 1]).addcmul_(new_in, new)
            torch.mul(out, torch.tanh(cs[t + 1], out=tanh_c[t]), out=hs[t + 1])
        return UnrolledLSTM(x, gates.view(steps, count, 4, self.size), hs, cs, tanh_c, keep, kept)

    def backward(
        self,
        done: UnrolledLSTM,
        gradient: Tensor,  # [L, S, H] of the state h after each step
    ) -> Tensor:  # [L, S, in]
        """Return the gradient of the input; overwrite those of the parameters."""
        x, gates, hs, cs, tanh_c, keep, kept = done
        new_in, keep_in, new, out = gates.unbind(2)
        # Factors of the gradients of c, and of h for the output gate.
        slopes = gates * (1 - gates)
        slopes[:, :, 0] *= new
        slopes[:, :, 1] *= cs[:-1] * keep
        torch.mul(new_in, 1 - new * new, out=slopes[:, :, 2])
        slopes[:, :, 3] *= tanh_c
        of_c = out * (1 - tanh_c * tanh_c)
        of_gates = torch.empty_like(gates)
        of_h, of_cell = torch.zeros_like(hs[0]), torch.zeros_like(cs[0])
        for t in range(len(x) - 1, -1, -1):
            of_h += gradient[t]
            of_cell.addcmul_(of_h, of_c[t])
            torch.mul(of_cell.unsqueeze(1), slopes[t, :, :3], out=of_gates[t, :, :3])
            torch.mul(of_h, slopes[t, :, 3], out=of_gates[t, :, 3])
            of_h = of_gates[t].flatten(1) @ self.of_hidden.weight
            of_cell *= keep_in[t]
            keeping = kept[t]
            if keeping is not None:
                of_h *= keeping
                of_cell *= keeping
        rows = of_gates.view(-1, 4 * self.size)
        torch.mm(rows.t(), (hs[:-1] * keep).flatten(0, 1), out=self.of_hidden.weight_gradient)
        of_input = self.of_input.backward(x.flatten(0, 1), rows)
        self.of_hidden.bias_gradient.copy_(self.of_input.bias_gradient)
        return of_input.view_as(x)


class FastRecurrentActorCritic:
    """A `RecurrentActorCritic` with an LSTM: the columns of its `inputs` -> its outputs for the N valid steps."""

    def __init__(self, policy: RecurrentActorCritic) -> None:
        self.encoder = FastEncoder(policy.encoder)
        self.memory = FastLSTM(policy.memory.cell)
        self.pi, self.vf = LinearParameters.of(policy.pi), LinearParameters.of(policy.vf)

    @staticmethod
    def covers(policy: RecurrentActorCritic) -> bool:
        """Whether its memory is an LSTM on the CPU, and its encoder reads only observations and is covered."""
        remembers = type(policy.memory) is RecurrentCell and type(policy.memory.cell) is nn.LSTM
        alone = not policy.prev_actions and not policy.prev_rewards and policy.device.type == "cpu"
        return remembers and alone and FastEncoder.covers(policy.encoder)

    def forward(
        self, obs: Tensor, begins: Tensor, valid: Tensor, h: Tensor, c: Tensor
    ) -> tuple[tuple[Tensor, Tensor], Backward]:
        """Return the outputs and their backward function."""
        shape = begins.shape
        hidden = self.encoder.forward(obs.flatten(0, 1))
        features = hidden[-1][0].view(*shape, -1)
        done = self.memory.forward(features.transpose(0, 1).contiguous(), begins, h, c)
        remembered = done.h[1:].transpose(0, 1).flatten(0, 1).index_select(0, valid)

        def backward(grad_inputs: Tensor, grad_values: Tensor) -> None:
            gradient = self.pi.backward(remembered, grad_inputs)
            gradient += self.vf.backward(remembered, grad_values.unsqueeze(-1))
            every_step = gradient.new_zeros(shape.numel(), gradient.shape[-1]).index_copy_(0, valid, gradient)
            of_features = self.memory.backward(done, every_step.view(*shape, -1).transpose(0, 1))
            self.encoder.stack.backward(hidden, of_features.transpose(0, 1).flatten(0, 1).unsqueeze(0))

        return (self.pi.forward(remembered), self.vf.forward(remembered).squeeze(-1)), backward
