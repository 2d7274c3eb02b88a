"""The observation filter: it transforms observations before a policy sees them.

A worker's filter also collects statistics since its last `delta`. The driver merges the deltas of all workers into the
central filter and synchronises the workers with it, so that no observation counts twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from reef.errors import ConfigError, nearest
from reef.math.running import RunningStat
from reef.spaces import Layout
from reef.types import Array, PolicyId, State

FILTERS = ("NoFilter", "MeanStdFilter")
EPSILON = 1e-8  # an element that deviates less was constant: divided, another value would become as large as 1e8


class MeanStdFilter:
    """Subtracts the running mean and divides by the running standard deviation, element by element.

    Only Box parts are filtered: indices of Discrete parts stay unchanged because they select one-hot rows, and bytes
    are scaled by the networks. The result has the dtype of the observations' layout; `make_filter` refuses integer
    boxes.
    """

    def __init__(self, layout: Layout) -> None:
        self._dtype = layout.dtype
        self._fixed: Array | None = None  # [*obs] bool: elements that stay unchanged
        fixed = np.ones(layout.size, np.bool_)  # beside the leaves may be an action mask
        for leaf in layout.leaves:
            fixed[leaf.offset : leaf.offset + leaf.size] = leaf.is_bytes or not isinstance(leaf.space, spaces.Box)
        if fixed.any():
            self._fixed = fixed.reshape(layout.shape)
        self.stat = RunningStat(layout.shape)
        self._delta = RunningStat(layout.shape)
        self._refresh()

    def __call__(
        self,
        obs: Array,  # [B, *obs]
        *,
        update: bool = True,
    ) -> Array:
        """Return new, filtered observations [B, *obs]; with `update` they are added to the statistics first."""
        if update:
            seen = RunningStat(self.stat.mean.shape)
            seen.push(obs)
            self._delta.merge(seen)
            self.stat.merge(seen)
            self._refresh()
        elif obs.shape[obs.ndim - self.mean.ndim :] != self.mean.shape:
            raise ConfigError(
                f"the filter takes observations of the shape {self.mean.shape}, not {obs.shape}: where indices are "
                "beside numbers, let algorithm.compute_single_action apply it."
            )
        return ((obs - self.mean) * self.scale).astype(self._dtype)

    def _refresh(self) -> None:
        self.mean, std = self.stat.mean, self.stat.std
        self.scale = 1.0 / np.where(std > EPSILON, std + EPSILON, 1.0)
        if self._fixed is not None:
            self.mean, self.scale = np.where(self._fixed, 0.0, self.mean), np.where(self._fixed, 1.0, self.scale)

    def delta(self) -> RunningStat:
        """Return the statistics since the last call, and start again."""
        delta, self._delta = self._delta, RunningStat(self.stat.mean.shape)
        return delta

    def merge(self, delta: RunningStat) -> None:
        """Add the statistics of another filter; they do not count for this filter's own delta."""
        self.stat.merge(delta)
        self._refresh()

    def sync(self, other: MeanStdFilter) -> None:
        """Replace the statistics with those of another filter; this filter's own delta still counts."""
        self.stat = other.stat.copy()
        self.stat.merge(self._delta)
        self._refresh()

    def state(self) -> State:
        """The statistics, and the part of them that was not yet returned by `delta`."""
        return {"stat": self.stat.state(), "delta": self._delta.state()}

    def set_state(self, state: State) -> None:
        """Restore what `state` returned."""
        self.stat, self._delta = RunningStat.of(state["stat"]), RunningStat.of(state["delta"])
        self._refresh()


class Filters(dict[PolicyId, MeanStdFilter]):
    """The filters of those policies that have one; `filters[policy_id]` of another one changes nothing."""

    def __init__(self, by_policy: Mapping[PolicyId, MeanStdFilter | None]) -> None:
        super().__init__({policy_id: own for policy_id, own in by_policy.items() if own is not None})
        self.policies = list(by_policy)

    def __missing__(self, policy_id: PolicyId) -> Any:
        if policy_id not in self.policies:
            raise KeyError(f"PolicyID {policy_id!r} not found; there is {sorted(self.policies)}")
        return unfiltered


def unfiltered(obs: Array, *, update: bool = False) -> Array:
    """The observations as they are: the filter "NoFilter"."""
    return obs


def make_filter(name: str, layout: Layout) -> MeanStdFilter | None:
    """Make the filter named by the setting `observation_filter`; ConfigError for another name or an integer Box.

    None leaves observations unchanged: for "NoFilter", or if nothing can be filtered (a Discrete, MultiDiscrete or
    MultiBinary observation).
    """
    if name not in FILTERS:
        raise ConfigError(f"observation_filter={name!r}: expected one of {', '.join(FILTERS)}.{nearest(name, FILTERS)}")
    boxes = [leaf.space for leaf in layout.leaves if isinstance(leaf.space, spaces.Box)]
    if name == "NoFilter" or not boxes:
        return None
    if not np.issubdtype(layout.dtype, np.floating):
        raise ConfigError(
            f"observation_filter='MeanStdFilter' needs floating-point observations, but they are {layout.space}. Use "
            "'NoFilter': networks scale bytes themselves."
        )
    return MeanStdFilter(layout)
