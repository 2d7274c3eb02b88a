"""Runs one policy in the columns of environments that answer apart."""

from __future__ import annotations

import numpy as np

from reef.envs.vector import StepResult
from reef.rollout.policies.turn_runner import TurnRunner
from reef.rollout.policy_runner import PolicyRunner
from reef.types import Array, State


class BatchRunner(TurnRunner):
    """A `TurnRunner` of environments with one agent: a row is a step, also the dead one of an environment that broke.

    A fragment of fixed length has as many rows in each column: one that has them all waits for the others.
    """

    def begin(self, steps: int, first: Array | None = None) -> None:
        """Allocate `steps` rows; with the `first` observations [B, *obs] new episodes start."""
        assert self.columns.present is not None
        self.columns.present[:] = True
        super().begin(steps, first)

    def fills(self, steps: int) -> bool:
        """Whether all columns have `steps` rows; those that have do not act until the next fragment begins."""
        assert self.columns.present is not None
        full = self.fragment.rows >= steps
        self.columns.present[full] = False
        return bool(full.all())

    def record(self, t: int, result: StepResult, active: Array | None) -> Array | None:
        """End the rows of the columns that are live in `result`, or broke."""
        assert result.live is not None
        broken = result.truncated & ~result.live
        counted = super().record(t, result._replace(live=result.live | broken), active)
        columns = np.flatnonzero(broken if counted is None else broken & counted)
        self.fragment.mask[self.fragment.rows[columns] - 1, columns] = False
        return counted

    def state(self) -> State:
        """Everything except the weights and the filter."""
        return PolicyRunner.state(self)  # between fragments no result is missing

    def resume(self, state: State, first: Array, resumed: Array) -> None:
        """Continue from `state` in the columns where `resumed` [B] is True; the others start with `first` [B, *obs]."""
        PolicyRunner.resume(self, state, first, resumed)
