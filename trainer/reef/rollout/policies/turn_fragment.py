"""The arrays of a fragment in which each column has steps of its own."""

from __future__ import annotations

import numpy as np

from reef.batch import Rollout
from reef.nn.policies import Policy
from reef.rollout.policy_runner import Fragment
from reef.types import Array


class TurnFragment(Fragment):
    """A row is a step of the column's agent, from its action to its next one: each column has as many as it ended.

    So the rows of a column follow each other in time, and there is padding at the end alone.
    """

    def __init__(self, policy: Policy, columns: int, steps: int, own_logp: bool) -> None:
        """For `steps` steps of the environments; `own_logp`: whether log-likelihoods are written."""
        layout = policy.observation_layout
        nothing = np.zeros((columns, *layout.shape), layout.dtype)
        # one row more: for an action that has no result yet
        super().__init__(policy, nothing, steps + 1, policy.initial_state(columns), own_logp)
        for name in ("obs", "actions", "rewards", "terminated", "truncated", "mask", "dist_inputs", "logp"):
            if (array := getattr(self, name)) is not None:
                array[:] = 0
        self.rows = np.zeros(columns, np.int64)  # [B] that are complete
        self.ended_at = np.full((steps + 1, columns), -1, np.int64)  # [T, B] the step of the environments

    @property
    def observed(self) -> int:
        """Number of steps whose observations are written."""
        return int(self.rows.max(initial=0)) + 1

    @observed.setter
    def observed(self, count: int) -> None:
        """The base class counts steps of the environments."""

    def act(self, columns: Array, obs: Array, actions: Array, inputs: Array, logp: Array | float) -> None:
        """Write actions [B, *action] of some columns, with the rest of what `PolicyRunner.choose` returned."""
        rows = self.rows[columns]
        self.obs[rows, columns], self.actions[rows, columns] = obs[columns], actions[columns]
        if self.dist_inputs is not None:
            self.dist_inputs[rows, columns] = inputs[columns]
        if self.logp is not None:
            self.logp[rows, columns] = np.broadcast_to(logp, self.rows.shape)[columns]

    def complete(
        self, columns: Array, t: int, rewards: Array, terminated: Array, truncated: Array, after: Array
    ) -> None:
        """End the rows of some columns in step `t`, with the observations `after` [B, *obs] of the next ones."""
        rows = self.rows[columns]
        self.rewards[rows, columns] = rewards[columns]
        self.terminated[rows, columns], self.truncated[rows, columns] = terminated[columns], truncated[columns]
        self.mask[rows, columns], self.ended_at[rows, columns] = True, t
        self.obs[rows + 1, columns] = after[columns]
        self.rows[columns] += 1

    def is_full(self, steps: int) -> bool:
        """Whether a column has no row left for another result."""
        return self.observed >= self.capacity

    def parts(self, column: int, first: int, end: int) -> list[slice]:
        """The rows of a column that ended in the steps from `first` to `end`."""
        ended_at = self.ended_at[: self.rows[column], column]
        start, stop = (int(edge) for edge in np.searchsorted(ended_at, (first, end)))
        return [slice(start, stop)] if start < stop else []

    def grow(self) -> None:
        """Double the capacity, keeping the written rows."""
        for name in ("obs", "actions", "rewards", "terminated", "truncated", "mask", "dist_inputs", "logp", "ended_at"):
            if (array := getattr(self, name)) is not None:
                setattr(self, name, np.concatenate([array, np.zeros_like(array)]))

    def rollout(self, steps: int, policy_version: int) -> Rollout:
        """As many rows as the column with the most has."""
        return super().rollout(int(self.rows.max(initial=0)), policy_version)
