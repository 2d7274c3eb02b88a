"""The gated transformer GTrXL (Parisotto et al. 2020): attention over the last steps of an episode."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

STEPS = "steps"  # in the state: number of remembered steps of the episode


class Gate(nn.Module):
    """A GRU-type gate between an old and a new value [..., size] (section 3.2)."""

    def __init__(self, size: int, bias: float) -> None:
        """With a `bias` above 0, the gate initially passes the old value."""
        super().__init__()
        self.of_new = nn.Linear(size, 3 * size, bias=False)
        self.of_old = nn.Linear(size, 2 * size, bias=False)
        self.of_reset = nn.Linear(size, size, bias=False)
        self.bias = nn.Parameter(torch.full((size,), bias))

    def forward(self, old: Tensor, new: Tensor) -> Tensor:
        """[..., size]."""
        reset_new, update_new, candidate_new = self.of_new(new).chunk(3, -1)
        reset_old, update_old = self.of_old(old).chunk(2, -1)
        reset = torch.sigmoid(reset_new + reset_old)
        update = torch.sigmoid(update_new + update_old - self.bias)
        candidate = torch.tanh(candidate_new + self.of_reset(reset * old))
        return (1 - update) * old + update * candidate


class Attention(nn.Module):
    """Every step attends to itself and the `reach` steps before it, by content and distance (Dai et al. 2019, 3.3)."""

    def __init__(self, size: int, heads: int, head_size: int, reach: int) -> None:
        super().__init__()
        self.heads, self.reach = heads, reach
        self.query = nn.Linear(size, heads * head_size, bias=False)
        self.key_value = nn.Linear(size, 2 * heads * head_size, bias=False)
        self.distance = nn.Linear(size, heads * head_size, bias=False)
        self.out = nn.Linear(heads * head_size, size, bias=False)
        self.content_bias = nn.Parameter(torch.zeros(heads, head_size))
        self.distance_bias = nn.Parameter(torch.zeros(heads, head_size))
        self.register_buffer("waves", _waves(reach, size), persistent=False)

    def forward(
        self,
        x: Tensor,  # [S, L, size] the steps
        before: Tensor,  # [S, reach + L, size] the `reach` earlier steps, then the steps
        seen: Tensor,  # [S, L, reach + 1] bool: steps of the window in the same episode, the step itself last
    ) -> Tensor:
        """[S, L, size]."""
        query = self.query(x).unflatten(-1, (self.heads, -1))
        keys, values = self.key_value(before).unflatten(-1, (2 * self.heads, -1)).chunk(2, 2)
        window = self.reach + 1
        distance = self.distance(self.waves).unflatten(-1, (self.heads, -1))
        content = torch.einsum("slhd,slhdw->slhw", query + self.content_bias, keys.unfold(1, window, 1))
        place = torch.einsum("slhd,whd->slhw", query + self.distance_bias, distance)
        scores = (content + place) / math.sqrt(query.shape[-1])
        shares = scores.masked_fill(~seen.unsqueeze(2), -math.inf).softmax(-1)
        found: Tensor = self.out(torch.einsum("slhw,slhdw->slhd", shares, values.unfold(1, window, 1)).flatten(2))
        return found


class Block(nn.Module):
    """Attention and a perceptron, each with a layer norm before and a gate after it, which can pass the input on."""

    def __init__(self, size: int, heads: int, head_size: int, reach: int, mlp: int, bias: float) -> None:
        super().__init__()
        self.norm, self.norm_2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.attention = Attention(size, heads, head_size, reach)
        self.gate, self.gate_2 = Gate(size, bias), Gate(size, bias)
        self.mlp = nn.Sequential(nn.Linear(size, mlp), nn.ReLU(), nn.Linear(mlp, size))

    def forward(self, before: Tensor, seen: Tensor) -> Tensor:
        """`before` and `seen` as in `Attention`; the steps are the end of `before`."""
        x, normed = before[:, -seen.shape[1] :], self.norm(before)
        x = self.gate(x, F.relu(self.attention(normed[:, -seen.shape[1] :], normed, seen)))
        gated: Tensor = self.gate_2(x, F.relu(self.mlp(self.norm_2(x))))
        return gated


class GatedTransformer(nn.Module):
    """Features of sequences [S, L, in] -> [S, L, size].

    The state contains, for each block, its inputs at the last `reach` steps, [S, reach, size], and how many of them
    belong to the current episode, [S].
    """

    def __init__(
        self,
        in_features: int,
        *,
        blocks: int,
        size: int,
        heads: int,
        head_size: int,
        acting_reach: int,  # earlier steps that each step attends to when acting
        training_reach: int,
        mlp: int,
        bias: float,
    ) -> None:
        super().__init__()
        reach = max(acting_reach, training_reach)
        self.reaches = {True: acting_reach, False: training_reach}
        self.embed = nn.Linear(in_features, size)
        self.blocks = nn.ModuleList(Block(size, heads, head_size, reach, mlp, bias) for _ in range(blocks))
        self.names = [f"memory_{index}" for index in range(blocks)]
        self.reach, self.out_features = reach, size
        self.state_shapes: dict[str, tuple[int, ...]] = {STEPS: (), **dict.fromkeys(self.names, (reach, size))}

    def forward(
        self,
        x: Tensor,  # [S, L, in]
        begins: Tensor | None,  # [S, L] bool: an episode starts with this step; None: nowhere
        state: Mapping[str, Tensor],  # before the first step
        *,
        acting: bool,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the features, and the state after the last step."""
        age = self._age(x, begins, state[STEPS])
        offset = torch.arange(self.reach, -1, -1, device=x.device)
        seen = offset <= age.clamp(max=self.reaches[acting]).unsqueeze(-1)
        after = {STEPS: (age[:, -1] + 1).clamp(max=self.reach)}
        hidden = self.embed(x)
        for name, block in zip(self.names, self.blocks, strict=True):
            before = torch.cat([state[name], hidden], 1)
            after[name] = before[:, before.shape[1] - self.reach :]
            hidden = block(before, seen)
        return hidden, after

    @staticmethod
    def _age(x: Tensor, begins: Tensor | None, remembered: Tensor) -> Tensor:
        """[S, L] known earlier steps of the same episode, for each step."""
        places = torch.arange(x.shape[1], device=x.device)
        counted = remembered.unsqueeze(1) + places
        if begins is None:
            return counted
        latest = torch.where(begins, places, -1).cummax(1).values
        return torch.where(latest >= 0, (places - latest).to(counted.dtype), counted)


def _waves(reach: int, size: int) -> Tensor:
    """Sinusoids of the distances `reach`, ..., 1, 0: [reach + 1, size] (Vaswani et al. 2017, section 3.5)."""
    distances = torch.arange(reach, -1.0, -1.0)
    rates = torch.exp(torch.arange(0, size, 2) * (-math.log(10000.0) / size))
    angles = distances.unsqueeze(1) * rates
    return torch.cat([angles.sin(), angles.cos()], 1)[:, :size]
