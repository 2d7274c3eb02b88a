"""A ring buffer of transitions in preallocated arrays, sampled uniformly."""

from __future__ import annotations

import numpy as np

from reef.batch import TRANSITION_COLUMNS, Transitions, transition_arrays
from reef.errors import ConfigError, DamagedCheckpointError
from reef.trees import USE_ANOTHER, require_like
from reef.types import Array, State


class ReplayBuffer:
    """The newest `capacity` transitions, sampled uniformly with replacement."""

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ConfigError(f"replay_buffer_config.capacity={capacity} must be at least 1 transition.")
        self.capacity = capacity
        self.added = 0  # total number of transitions so far
        self._columns: dict[str, Array] = {}  # name -> [capacity, ...]

    def __len__(self) -> int:
        return min(self.added, self.capacity)

    def add(self, transitions: Transitions, td_errors: Array | None = None) -> Array:
        """Store [N] transitions over the oldest ones; return their rows. `td_errors` [N]: for prioritized replay."""
        transitions = transitions[-self.capacity :] if len(transitions) > self.capacity else transitions
        first = self.added % self.capacity
        end = first + len(transitions)
        # A block is copied several times as fast as rows one by one.
        rows: Array = np.arange(first, end)
        where: Array | slice = slice(first, end)
        if end > self.capacity:
            rows %= self.capacity
            where = rows
        arrays = transition_arrays(transitions) | transitions.extras
        if not self._columns:
            # Untouched pages of np.zeros cost no memory, so a large capacity is paid for as it fills.
            self._columns = {
                name: np.zeros((self.capacity, *array.shape[1:]), array.dtype) for name, array in arrays.items()
            }
        for name, column in self._columns.items():
            column[where] = arrays[name]
        self.added += len(transitions)
        return rows

    def sample(self, count: int, rng: np.random.Generator) -> Transitions:
        """Sample [count] transitions."""
        return self.take(rng.integers(len(self), size=count))

    def take(self, rows: Array, extras: dict[str, Array] | None = None) -> Transitions:
        """Copy the transitions in `rows` [N], with additional extras if given."""
        taken = {name: column.take(rows, axis=0) for name, column in self._columns.items()}
        values = {name: taken.pop(name) for name in TRANSITION_COLUMNS}
        return Transitions(**values, extras=taken if extras is None else taken | extras)

    def state(self) -> State:
        """Copy the stored transitions."""
        return {
            "capacity": self.capacity,
            "added": self.added,
            "columns": {name: column[: len(self)].copy() for name, column in self._columns.items()},
        }

    def set_state(self, state: State) -> None:
        """Restore what `state` returned; a smaller buffer keeps the newest transitions.

        Raises `CheckpointError` if the stored arrays do not have the stored number of transitions.
        """
        require_like(state, {"capacity": 0, "added": 0, "columns": {}}, "the replay buffer")
        stored = min(state["added"], state["capacity"])
        if any(len(column) != stored for column in state["columns"].values()):
            raise DamagedCheckpointError(
                f"The stored replay buffer says {stored} transitions; its arrays say otherwise. {USE_ANOTHER}"
            )
        rows = self._kept(state)
        columns = {name: column[rows] for name, column in state["columns"].items()}
        added = state["added"] if state["capacity"] == self.capacity else len(rows)
        self._columns = {}
        for name, column in columns.items():
            self._columns[name] = np.zeros((self.capacity, *column.shape[1:]), column.dtype)
            self._columns[name][: len(column)] = column
        self.added = added

    def _kept(self, state: State) -> Array:
        """The rows to restore: all in place, or the newest ones in order if the capacities differ."""
        added, capacity = state["added"], state["capacity"]
        stored = min(added, capacity)
        if capacity == self.capacity:
            return np.arange(stored)
        newest: Array = np.arange(added - min(stored, self.capacity), added) % capacity
        return newest
