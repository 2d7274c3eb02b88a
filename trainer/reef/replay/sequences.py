"""Sequences of steps for replay, each with the recurrent state before its first step (Kapturowski et al. 2019)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from reef.batch import ROLLOUT_COLUMNS, TRANSITION_COLUMNS, Rollout, Transitions
from reef.nn.recurrent import SAMPLED_REWARDS
from reef.types import Array, State


class SequenceLengths(NamedTuple):
    """Steps of a sequence: first those that only bring the state up to date, then those that are learned from."""

    burn_in: int
    learned: int

    @property
    def total(self) -> int:
        """Steps that are stored for a sequence."""
        return self.burn_in + self.learned


class SequenceCutter:
    """Joins the fragments of one worker, in order, and cuts them into sequences of `lengths.total` steps.

    A sequence begins where a fragment began, because there the state is known with which the policy acted. The next
    one begins as many whole fragments later as fit into `lengths.learned`, so that every step but the first `burn_in`
    of a worker is learned from. Rows are sequences: each array has the shape [N, steps, ...]. extras["mask"] is False
    for steps that were not recorded, which hold zeros, and extras[name] [N, ...] is the state by its names.
    """

    def __init__(self, lengths: SequenceLengths) -> None:
        self.lengths = lengths
        # [C, B, ...] each: the steps that are waiting
        self._steps: dict[str, Array] = {}
        # [F] where fragments begin among them; [F, B, ...] the state there; [B] the index of the last fragment
        self._starts = np.zeros(0, np.int64)
        self._states: dict[str, Array] = {}
        self._fragment_index: Array | None = None

    def add(self, rollout: Rollout, fragment_index: Array | None = None) -> Transitions | None:
        """Add the next fragment [T, B]; return the sequences that are complete with it, None if there are none.

        Where `fragment_index` [B] does not follow that of the fragment before, for example after a worker was replaced,
        the episode is truncated; None: all columns go on.
        """
        steps = {name: _recorded(getattr(rollout, name), rollout.mask) for name in ROLLOUT_COLUMNS}
        if SAMPLED_REWARDS in rollout.extras:
            steps[SAMPLED_REWARDS] = _recorded(rollout.extras[SAMPLED_REWARDS], rollout.mask)
        starts = np.zeros(1, np.int64)
        states = {name: values[None].copy() for name, values in rollout.state_in.items()}
        if self._steps and self._steps["mask"].shape[1] == rollout.shape[1]:
            if fragment_index is not None and self._fragment_index is not None and len(self._starts):
                self._steps["truncated"][-1] |= fragment_index != self._fragment_index + 1
            starts = np.append(self._starts, len(self._steps["mask"]))
            # restored ones may have been stored without SAMPLED_REWARDS
            before = {SAMPLED_REWARDS: self._steps["rewards"]} | self._steps
            steps = {name: np.concatenate((before[name], column)) for name, column in steps.items()}
            states = {name: np.concatenate((self._states[name], values)) for name, values in states.items()}
        self._steps, self._starts, self._states = steps, starts, states
        self._fragment_index = fragment_index
        found = []
        while len(self._steps["mask"]) >= self.lengths.total:
            found.append(self._first())
            self._move_on()
        if not found:
            return None
        rows = {name: np.concatenate([one[name] for one in found]) for name in found[0]}
        learned = rows["mask"][:, self.lengths.burn_in :].any(1)
        rows = {name: column[learned] for name, column in rows.items()}
        return Transitions(**{name: rows.pop(name) for name in TRANSITION_COLUMNS}, extras=rows)

    def _first(self) -> dict[str, Array]:
        """The sequences of all columns from the first waiting step on, with the state before it."""
        cut = {name: column[: self.lengths.total].swapaxes(0, 1) for name, column in self._steps.items()}
        return cut | {name: values[0] for name, values in self._states.items()}

    def _move_on(self) -> None:
        """Drop the fragments before the start of the next sequence."""
        ends = np.append(self._starts[1:], len(self._steps["mask"]))
        count = max(int((ends <= self.lengths.learned).sum()), 1)
        start = int(ends[count - 1])
        self._steps = {name: column[start:] for name, column in self._steps.items()}
        self._states = {name: values[count:] for name, values in self._states.items()}
        self._starts = self._starts[count:] - start

    def state(self) -> State:
        """Copy what is waiting."""
        if not self._steps:
            return {}
        return {
            "steps": {name: column.copy() for name, column in self._steps.items()},
            "starts": self._starts.copy(),
            "states": {name: values.copy() for name, values in self._states.items()},
            "fragment_index": None if self._fragment_index is None else self._fragment_index.copy(),
        }

    def set_state(self, state: State) -> None:
        """Restore what `state` returned."""
        if state:
            self._steps = {name: np.array(column) for name, column in state["steps"].items()}
            self._starts = np.array(state["starts"])
            self._states = {name: np.array(values) for name, values in state["states"].items()}
            index = state["fragment_index"]
            self._fragment_index = None if index is None else np.array(index)


def count_steps(batch: Transitions, burn_in: int = 0) -> int:
    """Recorded steps of N transitions: N, or those in the mask of N sequences behind their first `burn_in` steps."""
    return int(np.count_nonzero(batch.extras["mask"][:, burn_in:])) if "mask" in batch.extras else len(batch)


def _recorded(column: Array, mask: Array) -> Array:
    """A copy of the column [T, B, ...], with zeros in steps that were not recorded."""
    column = column.copy()
    column[~mask] = 0
    return column
