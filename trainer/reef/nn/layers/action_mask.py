"""The mask in an observation: which actions are allowed."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from reef.errors import ConfigError, EnvironmentError
from reef.nn.distributions import DistributionMaker
from reef.nn.distributions.custom import CustomMaker
from reef.nn.distributions.discrete import EXCLUDED
from reef.spaces import Layout, Space
from reef.types import Array


class ActionMask:
    """A part of a Dict observation with one number for each action; 0 excludes the action.

    A MultiDiscrete action has a number for each choice of each element, in their order. A mask that excludes every
    action (of an element) counts as one that allows all, as after the end of an episode and in padding; `check` raises
    where an action had to be chosen by such a mask.
    """

    def __init__(self, key: str, layout: Layout, maker: DistributionMaker) -> None:
        """`layout`: of the whole observation; `maker`: of the actions. Raises ConfigError where they do not fit."""
        self.key = key
        problem = f"action_mask_key={key!r}: the observation has this key, but "
        otherwise = "Name another key; with null the part is an observation like any other."
        if isinstance(maker, CustomMaker):
            raise ConfigError(f"{problem}model.custom_action_dist knows no masks. {otherwise}")
        if not maker.is_of_indices:
            raise ConfigError(
                f"{problem}the actions {maker.space} are not all indices: masks are for Discrete and MultiDiscrete "
                f"actions. {otherwise}"
            )
        leaf = next((leaf for leaf in layout.leaves if leaf.path == (key,)), None)
        if leaf is None or leaf.size != maker.num_inputs:
            assert isinstance(layout.space, spaces.Dict), "it has the key"
            found = layout.space.spaces[key]
            raise ConfigError(
                f"{problem}it is {found}: the actions {maker.space} need {maker.num_inputs} numbers, one for each, "
                f"such as MultiBinary({maker.num_inputs}). {otherwise}"
            )
        if len(layout.leaves) == 1:
            raise ConfigError(f"{problem}nothing else, so there is nothing to choose by. {otherwise}")
        self.place = slice(leaf.offset, leaf.offset + leaf.size)
        # [actions of each element]
        self.sizes = [part.inputs.stop - part.inputs.start for part in maker.parts]
        # What encoders read of the whole observation, and filters change.
        self.rest = replace(layout, leaves=tuple(each for each in layout.leaves if each is not leaf))
        # What a custom model gets in its place.
        self.alone = Layout.of(without_mask(key, layout.space))

    def __call__(
        self,
        obs: Tensor,  # [..., *obs] whole observations
        logits: Tensor,  # [..., D] logits or Q-values
    ) -> Tensor:  # [..., D]
        """The logits, those of excluded actions so low that they have no probability, and no gradient."""
        elements = torch.split(obs[..., self.place] > 0, self.sizes, -1)
        allowed = torch.cat([each | ~each.any(-1, keepdim=True) for each in elements], -1)
        return torch.where(allowed, logits, EXCLUDED)

    def count(self, obs: Tensor) -> Tensor:
        """[N, *obs] -> [N], how many values a Discrete action may have."""
        allowed = (obs[..., self.place] > 0).sum(-1)
        return torch.where(allowed == 0, self.sizes[0], allowed)

    def without(self, obs: Tensor) -> Tensor:
        """[..., *obs] -> the observations without the mask, as a custom model gets them."""
        rest = torch.cat([obs[..., : self.place.start], obs[..., self.place.stop :]], -1)
        dtype = torch.from_numpy(np.empty(0, self.alone.dtype)).dtype
        return rest.reshape(*obs.shape[:-1], *self.alone.shape).to(dtype)

    def excludes_all(self, obs: Array) -> Array:
        """[..., *obs] -> [...] bool, whether some element of the action has no allowed value."""
        allows: Array = np.all([each.any(-1) for each in self._elements(obs)], 0)
        return ~allows

    def excludes(
        self,
        obs: Array,  # [..., *obs]
        actions: Array,  # [..., *action]
    ) -> Array:  # [...] bool
        """Whether some element of the action is excluded."""
        chosen = actions.reshape(*obs.shape[:-1], len(self.sizes), 1).astype(np.int64)
        found: Array = np.zeros(obs.shape[:-1], np.bool_)
        for index, allowed in enumerate(self._elements(obs)):
            found |= allowed.any(-1) & ~np.take_along_axis(allowed, chosen[..., index, :], -1)[..., 0]
        return found

    def _elements(self, obs: Array) -> list[Array]:
        """[..., *obs] -> for each element of the action [..., values] bool, which are allowed."""
        return np.split(obs[..., self.place] > 0, np.cumsum(self.sizes)[:-1], -1)

    def check(
        self,
        obs: Array,  # [T, B, *obs]
        valid: Array,  # [T, B] bool
        env: str,
    ) -> None:
        """Raise EnvironmentError for the first valid step without an allowed action."""
        stuck = valid & self.excludes_all(obs)
        if stuck.any():
            step, column = map(int, np.argwhere(stuck)[0])
            raise EnvironmentError(
                f"environment {env!r}: {self.key!r} excludes every action in step {step} of the fragment, environment "
                f"{column}. Allow at least one, or end the episode before."
            )


def action_mask(key: str | None, layout: Layout, maker: DistributionMaker) -> ActionMask | None:
    """The mask in observations of this layout, or None; ConfigError for one that does not fit the actions."""
    space = layout.space
    if key is None or not isinstance(space, spaces.Dict) or key not in space.spaces:
        return None
    return ActionMask(key, layout, maker)


def without_mask(key: str | None, space: Space) -> Space:
    """The observation space of networks: a Dict loses `key`, and is the one space that is left, if it is one."""
    if not isinstance(space, spaces.Dict) or key not in space.spaces:
        return space
    rest = OrderedDict((name, child) for name, child in space.spaces.items() if name != key)
    return next(iter(rest.values())) if len(rest) == 1 else spaces.Dict(rest)
