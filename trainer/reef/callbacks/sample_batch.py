"""`SampleBatch`: the arrays of a batch by RLlib's names, for hooks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from reef.batch import TRANSITION_COLUMNS, Rollout, Transitions
from reef.errors import CallbackError, nearest
from reef.types import Array

Batch = TypeVar("Batch", Rollout, Transitions)
NAMES = {"next_obs": "new_obs", "terminated": "terminateds", "truncated": "truncateds"}  # others stay


class SampleBatch(MutableMapping[str, Array]):
    """Arrays with the same rows, which a batch of Reef has too: to assign to a key writes into its array.

    "dones", where an episode ended for either reason, can only be read.
    """

    def __init__(self, arrays: dict[str, Array]) -> None:
        self._arrays = arrays

    @classmethod
    def of(cls, batch: Rollout | Transitions, part: Callable[[Array], Array] = lambda array: array) -> SampleBatch:
        """The arrays of `batch`, or what `part` takes of each."""
        own = {NAMES.get(name, name): part(getattr(batch, name)) for name in TRANSITION_COLUMNS}
        return cls(own | {name: part(array) for name, array in batch.extras.items()})

    @property
    def count(self) -> int:
        """Number of rows."""
        return len(self._arrays["rewards"])

    def copy(self) -> SampleBatch:
        """A batch with arrays of its own."""
        return SampleBatch({name: array.copy() for name, array in self._arrays.items()})

    def __getitem__(self, name: str) -> Array:
        if name == "dones":
            return np.logical_or(self._arrays["terminateds"], self._arrays["truncateds"])
        return self._arrays[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if name not in self._arrays:
            hint = nearest(name, self._arrays)
            raise CallbackError(f"callbacks: a batch has no array {name!r} to write to.{hint} It has {list(self)}.")
        array = self._arrays[name]
        if np.shape(value) != array.shape:
            raise CallbackError(
                f"callbacks: batch[{name!r}] has the shape {list(array.shape)}, not {list(np.shape(value))}: give one "
                "value for each row."
            )
        array[...] = value

    def __delitem__(self, name: str) -> None:
        raise CallbackError(f"callbacks: batch[{name!r}] cannot be deleted: the learner needs it.")

    def __iter__(self) -> Iterator[str]:
        return iter((*self._arrays, "dones"))

    def __len__(self) -> int:
        return len(self._arrays) + 1


def writable(batch: Batch) -> Batch:
    """Return `batch` with arrays of its own, none of which overlap."""
    own = {name: getattr(batch, name).copy() for name in TRANSITION_COLUMNS}
    return replace(batch, **own, extras={name: array.copy() for name, array in batch.extras.items()})
