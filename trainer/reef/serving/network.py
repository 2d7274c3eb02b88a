"""A policy as one torch module: from observations of the environment to its most likely actions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from reef.errors import ConfigError
from reef.nn.distributions.continuous import DiagonalGaussian, Squashed, SquashedGaussian
from reef.nn.distributions.discrete import Bernoulli, Categorical
from reef.nn.queries.policy import PREV_ACTIONS, PREV_REWARDS
from reef.nn.recurrent import RecurrentPolicy, one_step
from reef.rollout.policies.connectors import TO_ENV, TO_POLICY
from reef.serving.finished import FinishedPolicy
from reef.spaces import Layout, Leaf
from reef.types import Array

# `mode` of each distribution, on tensors: [N, D] -> one action per row.
MODES: Mapping[type, Callable[[Tensor], Tensor]] = {
    Categorical: lambda inputs: inputs.argmax(-1),
    Bernoulli: lambda inputs: (inputs > 0).to(torch.int8),
    DiagonalGaussian: lambda inputs: inputs[:, : inputs.shape[-1] // 2],
    SquashedGaussian: lambda inputs: torch.tanh(inputs[:, : inputs.shape[-1] // 2]),
    Squashed: torch.tanh,
}


class ActingNetwork(nn.Module):
    """One-hot encoding, filter, network, choice, and the bounds of actions.

    It takes a tensor [N, ...] for each of `input_names`, and returns a tuple of one for each of `output_names`: parts
    of the observation, then the state; parts of the action, then the state after it.
    """

    mean: Tensor
    filter_scale: Tensor
    scale: Tensor
    shift: Tensor
    low: Tensor
    high: Tensor
    whole: Tensor

    def __init__(self, finished: FinishedPolicy) -> None:
        """Raises ConfigError for a policy that calls functions of a person's own, which no file can hold."""
        super().__init__()
        if problem := _not_in_a_file(finished):
            raise ConfigError(problem)
        self.policy, runner = finished.policy, finished.runner
        self.observations, self.actions = self.policy.observation_layout, self.policy.action_layout
        self.state_names = finished.state_names
        names = [_name("observation", leaf) for leaf in self.observations.leaves]
        self.input_names = (*names, *(f"state.{name}" for name in self.state_names))
        names = [_name("action", leaf) for leaf in self.actions.leaves]
        self.output_names = (*names, *(f"next_state.{name}" for name in self.state_names))
        bounds = runner.columns.action_transform
        self.has_filter, self.has_bounds = runner.filter is not None, not bounds.identity
        if runner.filter is not None:
            self._keep(mean=runner.filter.mean, filter_scale=runner.filter.scale)
        self._keep(scale=bounds.scale, shift=bounds.shift, low=bounds.low, high=bounds.high, whole=bounds.whole)

        self.requires_grad_(False)

    def _keep(self, **arrays: Array) -> None:
        for name, array in arrays.items():
            self.register_buffer(name, torch.from_numpy(np.array(array)), persistent=False)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """See the class."""
        count = len(self.observations.leaves)
        obs = self._observed(inputs[:count])
        state = dict(zip(self.state_names, inputs[count:], strict=True))
        if not isinstance(self.policy, RecurrentPolicy):
            return (*self._env_actions(self._chosen(self.policy.dist_inputs(obs))),)
        unrolled = self.policy.unroll(one_step(obs, state), acting=True)
        actions = self._chosen(unrolled.dist_inputs[:, 0])
        after = state | unrolled.state | self._previous(state, actions)
        return (*self._env_actions(actions), *(after[name] for name in self.state_names))

    def _observed(self, parts: Sequence[Tensor]) -> Tensor:
        """Parts of an observation [N, ...] -> [N, *obs], filtered."""
        layout = self.observations
        shifted = [_shift(part, leaf, -1) for part, leaf in zip(parts, layout.leaves, strict=True)]
        dtype = _torch(layout.dtype)
        if not layout.composite:
            obs = shifted[0].to(dtype)
        else:
            obs = torch.cat([part.reshape(part.shape[0], -1).to(dtype) for part in shifted], 1)
        return ((obs - self.mean) * self.filter_scale).to(dtype) if self.has_filter else obs

    def _chosen(self, inputs: Tensor) -> Tensor:
        """[N, D] -> [N, *action]."""
        maker = self.policy.dist_class
        if not maker.joint:
            return MODES[maker.parts[0].make](inputs).reshape(-1, *self.actions.shape)
        chosen = [MODES[part.make](inputs[:, part.inputs]).reshape(inputs.shape[0], -1) for part in maker.parts]
        dtype = _torch(maker.dtype)
        return torch.cat([part.to(dtype) for part in chosen], 1).reshape(-1, *self.actions.shape)

    def _previous(self, state: dict[str, Tensor], actions: Tensor) -> dict[str, Tensor]:
        """The earlier actions and rewards in the state, with the newest; its reward is not known yet, and 0."""
        after = {}
        if PREV_ACTIONS in state:
            before = state[PREV_ACTIONS]
            after[PREV_ACTIONS] = torch.cat([actions.unsqueeze(1).to(before.dtype), before[:, :-1]], 1)
        if PREV_REWARDS in state:
            before = state[PREV_REWARDS]
            after[PREV_REWARDS] = torch.cat([torch.zeros_like(before[:, :1]), before[:, :-1]], 1)
        return after

    def _env_actions(self, actions: Tensor) -> list[Tensor]:
        """[N, *action] as the policy chose them -> the parts of the action [N, ...] in their bounds."""
        if self.has_bounds:
            bounded = torch.minimum(torch.maximum(actions * self.scale + self.shift, self.low), self.high)
            actions = torch.where(self.whole, torch.round(bounded), bounded).to(_torch(self.actions.dtype))
        if not self.actions.composite:
            return [_shift(actions, self.actions.leaves[0], 1)]
        return [self._leaf_action(actions, leaf) for leaf in self.actions.leaves]

    def _leaf_action(self, actions: Tensor, leaf: Leaf) -> Tensor:
        part = actions[:, leaf.offset : leaf.offset + leaf.size].reshape(-1, *leaf.shape)
        dtype: Any = leaf.space.dtype
        part = torch.round(part) if np.issubdtype(dtype, np.integer) else part
        return _shift(part.to(_torch(dtype)), leaf, 1)


def parts_of(layout: Layout, values: Sequence[Any]) -> list[Array]:
    """N values of a space -> for each of its leaves [N, ...], with the leaf's own dtype."""
    parts = []
    for leaf in layout.leaves:
        found = []
        for value in values:
            for key in leaf.path:
                value = value[key]
            found.append(value)
        parts.append(np.asarray(found, leaf.space.dtype))
    return parts


def _shift(values: Tensor, leaf: Leaf, sign: int) -> Tensor:
    """Values [N, ...] of a leaf from indices (`sign` 1), or the reverse (-1)."""
    if not np.any(leaf.start):
        return values
    return values + sign * torch.as_tensor(np.asarray(leaf.start), dtype=values.dtype)


def _name(of: str, leaf: Leaf) -> str:
    return ".".join((of, *map(str, leaf.path)))


def _torch(dtype: Any) -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype)).dtype


def _not_in_a_file(finished: FinishedPolicy) -> str | None:
    """Why a file cannot hold the policy, if it cannot."""
    instead = "Use reef serve, which calls it."
    for name, connector in ((TO_POLICY, finished.runner.to_policy), (TO_ENV, finished.runner.to_env)):
        if connector is not None:
            return f"{name}: a file holds no function of Python, so that it would act otherwise. {instead}"
    if own := [part.make.__name__ for part in finished.policy.dist_class.parts if part.make not in MODES]:
        return f"model.custom_action_dist: a file holds no code of {own[0]}. {instead}"
    return None
