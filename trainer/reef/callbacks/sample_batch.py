"""`SampleBatch`: the arrays of a batch by RLlib's names, for hooks and for `learn_on_batch`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from reef.batch import TRANSITION_COLUMNS, Rollout, Sample, Transitions, transition_arrays
from reef.callbacks.hooks import guarded
from reef.errors import CallbackError, ConfigError, nearest
from reef.types import Array, PolicyId

Batch = TypeVar("Batch", Rollout, Transitions)
NAMES = {"next_obs": "new_obs", "terminated": "terminateds", "truncated": "truncateds"}  # others stay


class SampleBatch(MutableMapping[str, Array]):
    """Arrays with the same rows, which a batch of Reef has too: to assign to a key writes into its array.

    "dones", where an episode ended for either reason, can only be read. Printed, it is a summary.
    """

    OBS, CUR_OBS, NEXT_OBS, ACTIONS, REWARDS = "obs", "obs", "new_obs", "actions", "rewards"
    TERMINATEDS, TRUNCATEDS, DONES = "terminateds", "truncateds", "dones"
    ACTION_LOGP, ACTION_DIST_INPUTS = "action_logp", "action_dist_inputs"

    def __init__(self, arrays: dict[str, Array], cut: Array | None = None) -> None:
        """`cut` [N] bool: rows after which another fragment begins though their episode goes on; None: nowhere."""
        self._arrays, self._cut = arrays, cut

    @classmethod
    def of(cls, batch: Rollout | Transitions, part: Callable[[Array], Array] = lambda array: array) -> SampleBatch:
        """The arrays of `batch`, or what `part` takes of each."""
        own = {NAMES.get(name, name): part(array) for name, array in transition_arrays(batch).items()}
        return cls(own | {name: part(array) for name, array in batch.extras.items()})

    @classmethod
    def concat_samples(cls, samples: Iterable[Sample | SampleBatch]) -> SampleBatch:
        """The valid steps [N, ...] of what workers sampled, one column after the other, or of such batches.

        Raises ConfigError where several policies acted: `MultiAgentBatch.concat_samples` keeps them apart.
        """
        samples = list(samples)
        batches = [each for each in samples if isinstance(each, SampleBatch)]
        taken = MultiAgentBatch.concat_samples([each for each in samples if not isinstance(each, SampleBatch)])
        if len(taken.policy_batches) > 1:
            raise ConfigError(
                f"SampleBatch.concat_samples: the policies {sorted(taken.policy_batches)} acted. Use "
                "MultiAgentBatch.concat_samples(samples).policy_batches, which has a batch for each."
            )
        batches += taken.policy_batches.values()
        if not batches:
            raise ConfigError("SampleBatch.concat_samples: there is nothing to put together: give one sample or more.")
        names = batches[0]._arrays
        arrays = {name: np.concatenate([each._arrays[name] for each in batches]) for name in names}
        return cls(arrays, np.concatenate([each._ends for each in batches]))

    @classmethod
    def of_steps(cls, rollout: Rollout) -> SampleBatch:
        """The valid steps [N, ...] of a rollout, one column after the other, in arrays of their own."""
        mask, rows = rollout.mask.T, rollout.flatten()
        last = np.ones(mask.shape, np.bool_)  # [B, T] nothing valid follows in the column
        last[:, :-1] = ~mask[:, 1:]
        batch = cls.of(rows, np.array)
        batch._cut = last[mask] & ~batch["dones"]
        return batch

    @property
    def count(self) -> int:
        """Number of rows."""
        return len(self._arrays["rewards"])

    @property
    def _ends(self) -> Array:
        """[N] bool: rows whose successor is not the next row, though their episode goes on; the last one is."""
        cut = np.zeros(self.count, np.bool_) if self._cut is None else self._cut.copy()
        if len(cut):
            cut[-1] |= not self["dones"][-1]
        return cut

    def rollout(self) -> Rollout:
        """The rows [N, ...] as one column [N, 1, ...], cut off wherever another fragment begins."""
        if self._arrays["rewards"].ndim != 1:
            raise ConfigError(
                f"a batch of the shape {list(self._arrays['rewards'].shape)} has no rows: only what concat_samples "
                "returns can be learned from, not the batch of a hook."
            )
        columns: dict[str, Any] = {own: self._arrays[NAMES.get(own, own)][:, None] for own in TRANSITION_COLUMNS}
        columns["truncated"] = columns["truncated"] | self._ends[:, None]
        others = self._arrays.keys() - {NAMES.get(own, own) for own in TRANSITION_COLUMNS}
        extras = {name: self._arrays[name][:, None] for name in sorted(others)}
        return Rollout(**columns, mask=np.ones((self.count, 1), np.bool_), extras=extras)

    def split_by_episode(self) -> list[SampleBatch]:
        """A batch of the rows of each episode, in their order; they share the arrays of this one.

        An episode that goes on in another fragment has a batch for its rows in each.
        """
        ends = np.flatnonzero(self["dones"] | self._ends) + 1
        parts = pairwise([0, *ends.tolist()])
        return [SampleBatch({name: array[start:end] for name, array in self._arrays.items()}) for start, end in parts]

    def copy(self) -> SampleBatch:
        """A batch with arrays of its own."""
        return SampleBatch({name: array.copy() for name, array in self._arrays.items()}, self._cut)

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

    def __repr__(self) -> str:
        lines = ",\n".join(f"  {name!r}: {summarized(self[name])}" for name in sorted(self))
        return f"{{\n{lines}\n}}"


class MultiAgentBatch:
    """A batch for each of several policies."""

    def __init__(self, policy_batches: dict[PolicyId, SampleBatch], env_steps: int) -> None:
        """`env_steps`: steps of environments, in each of which several agents may have acted."""
        self.policy_batches, self.count = policy_batches, env_steps

    @classmethod
    def concat_samples(cls, samples: Iterable[Sample]) -> MultiAgentBatch:
        """The valid steps of what workers sampled, by policy."""
        samples, parts = list(samples), dict[PolicyId, list[SampleBatch]]()
        for sample in samples:
            if not isinstance(sample, Sample):
                raise ConfigError(f"concat_samples: {type(sample).__name__} is not what worker.sample() returns.")
            for policy_id, rollout in sample.rollouts.items():
                parts.setdefault(policy_id, []).append(SampleBatch.of_steps(rollout))
        batches = {policy_id: SampleBatch.concat_samples(each) for policy_id, each in parts.items()}
        return cls(batches, sum(sample.env_steps for sample in samples))

    def __repr__(self) -> str:
        return f"MultiAgentBatch({self.policy_batches}, env_steps={self.count})"


def connect(function: Callable[[SampleBatch], Any], batch: SampleBatch) -> None:
    """Have the function of the setting `learner_connector` change a batch; CallbackError where it cannot be used."""
    found = guarded("learner_connector", function, batch)
    if not isinstance(found, Mapping):
        raise CallbackError(
            f"learner_connector returned {found!r}: expected the batch, or a dict of those of its arrays that change."
        )
    if found is batch:
        return
    before = batch["dones"]
    try:
        for name in found:
            if name != "dones":
                batch[name] = found[name]
    except CallbackError as error:
        raise CallbackError(f"learner_connector: {str(error).removeprefix('callbacks: ')}") from error
    if "dones" in found and not any(np.array_equal(found["dones"], each) for each in (before, batch["dones"])):
        raise CallbackError(
            "learner_connector changed 'dones', which can only be read: return terminateds, truncateds."
        )


def summarized(array: Array) -> str:
    """An array as a text: shape, type, smallest and largest value, mean."""
    shown = f"np.ndarray({array.shape}, dtype={array.dtype}"
    if not array.size or array.dtype == object:
        return f"{shown})"
    low, high, mean = (float(f"{value:.4g}") for value in (array.min(), array.max(), array.mean()))
    return f"{shown}, min={low}, max={high}, mean={mean})"


def writable(batch: Batch) -> Batch:
    """Return `batch` with arrays of its own, none of which overlap."""
    own = {name: array.copy() for name, array in transition_arrays(batch).items()}
    return replace(batch, **own, extras={name: array.copy() for name, array in batch.extras.items()})
