"""Runs one policy in the columns of environments that answer apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, takewhile

from reef.config import AlgorithmConfig
from reef.envs.by_policy import Columns
from reef.envs.vector import StepResult
from reef.rollout.policies.turn_runner import TurnRunner
from reef.rollout.policy_runner import PolicyRunner
from reef.types import Array, PolicyId, State


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
        """End the rows of the columns that are live in `result`, or broke; the others keep what they act on next."""
        held, counted = self._held, super().record(t, result, active)
        assert self.columns.present is not None
        waiting = ~self.columns.present
        # the filter has learned since, and a connector is not called with what is not present
        if self._held is not result.obs and waiting.any():
            self._held[waiting] = held[waiting]
        return counted

    def state(self) -> State:
        """Everything except the weights and the filter."""
        return PolicyRunner.state(self)  # between fragments no result is missing

    def resume(self, state: State, first: Array, resumed: Array) -> None:
        """Continue from `state` in the columns where `resumed` [B] is True; the others start with `first` [B, *obs]."""
        PolicyRunner.resume(self, state, first, resumed)


def until_full(runners: Sequence[BatchRunner], steps: int) -> Iterator[int]:
    """Count the steps of a worker until each column has `steps` of its own."""
    return takewhile(lambda _: not all([runner.fills(steps) for runner in runners]), count())


def make_runner(config: AlgorithmConfig, worker_index: int, columns: Columns, policy_id: PolicyId) -> PolicyRunner:
    """The runner of a policy in its columns; ConfigError if the network cannot be made."""
    in_order = TurnRunner if columns.takes_turns else PolicyRunner
    return (BatchRunner if columns.in_batches else in_order)(config, worker_index, columns, policy_id)
