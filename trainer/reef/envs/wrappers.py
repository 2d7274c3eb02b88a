"""What is done to whole [B] arrays on their way into and out of the environments."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from reef.spaces import Layout
from reef.types import Array


class ActionTransform:
    """Bring actions as the policy chose them into the bounds of the action space.

    `normalize`: the policy acts in [-1, 1], which is stretched to [low, high] where both are finite, then clipped.
    `clip`: actions are only clipped. Discrete parts are left as they are; integer boxes are rounded.
    """

    def __init__(self, layout: Layout, *, normalize: bool, clip: bool) -> None:
        self._dtype = layout.dtype
        low, high = np.full(layout.size, -np.inf), np.full(layout.size, np.inf)
        whole = np.zeros(layout.size, np.bool_)  # elements that must be whole numbers
        for leaf in layout.leaves:
            if isinstance(leaf.space, spaces.Box):
                part = slice(leaf.offset, leaf.offset + leaf.size)
                low[part] = leaf.space.low.reshape(-1)
                high[part] = leaf.space.high.reshape(-1)
                whole[part] = np.issubdtype(leaf.space.dtype, np.integer)
        self.low, self.high, self.whole = (each.reshape(layout.shape) for each in (low, high, whole))
        bounded = np.isfinite(self.low) & np.isfinite(self.high)
        has_box = any(isinstance(leaf.space, spaces.Box) for leaf in layout.leaves)
        self.seconds = 0.0  # spent here so far
        self.identity = not (has_box and (normalize or clip))
        # In one form for every element: a * scale + shift, where scale 1 and shift 0 leave it alone.
        stretch = bounded & normalize
        self.scale = np.ones(layout.shape)
        self.shift = np.zeros(layout.shape)
        self.scale[stretch] = (self.high[stretch] - self.low[stretch]) / 2
        self.shift[stretch] = (self.high[stretch] + self.low[stretch]) / 2

    def __call__(
        self,
        actions: Array,  # [B, *act]
    ) -> Array:
        """Return new actions [B, *act] in the space's dtype; the given array itself when there is nothing to do."""
        if self.identity:
            return actions
        started = time.perf_counter()
        bounded = np.clip(actions * self.scale + self.shift, self.low, self.high)
        bounded = np.where(self.whole, np.rint(bounded), bounded).astype(self._dtype)
        self.seconds += time.perf_counter() - started
        return bounded

    def inverse(
        self,
        actions: Array,  # [*act]
    ) -> Array:
        """What a policy chose whose action in the environment is this one, but for clipping and rounding."""
        return actions if self.identity else (actions - self.shift) / self.scale


def env_actions(
    actions: Array,  # [n, *act], as the policy chose them
    layout: Layout,
    transform: ActionTransform,
) -> list[Any]:
    """The actions as environments take them; none shares memory with the caller's."""
    bounded = transform(actions)
    if layout.composite:
        return [layout.unflatten(row) for row in bounded]
    values = layout.unflatten(bounded)
    if layout.shape == ():
        return values.tolist()  # type: ignore[no-any-return]
    return list(values.copy() if values is actions else values)


class RewardTransform:
    """Clip rewards: None clips Atari only, True takes the sign, False never, v clips to [-v, v], (a, b) to these."""

    def __init__(self, clip_rewards: bool | float | Sequence[float] | None, *, atari: bool) -> None:
        self._sign = clip_rewards is True or (clip_rewards is None and atari)
        self._bounds: tuple[float, float] | None = None
        if isinstance(clip_rewards, Sequence):
            self._bounds = (float(clip_rewards[0]), float(clip_rewards[1]))
        elif clip_rewards is not None and not isinstance(clip_rewards, bool):
            self._bounds = (-abs(float(clip_rewards)), abs(float(clip_rewards)))
        self.identity = not self._sign and self._bounds is None

    def __call__(
        self,
        rewards: Array,  # [B]
    ) -> Array:
        """Return the rewards [B] to train on; the given array itself when there is nothing to do."""
        if self._sign:
            return np.sign(rewards)
        return rewards if self._bounds is None else np.clip(rewards, *self._bounds)
