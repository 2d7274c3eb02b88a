"""A rollout as sequences, for recurrent policies: steps of one column in order, with the state before the first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import torch
from torch import Tensor

from reef.batch import Rollout, cut_ends
from reef.config import AlgorithmConfig
from reef.learn.device import to_device
from reef.learn.minibatches import Reading, Rows, repeated, shuffled
from reef.nn.gradients import SHARE, Columns
from reef.nn.policies import Policy
from reef.nn.recurrent import BEGINS, PREVIOUS, SAMPLED_REWARDS, VALID, RecurrentPolicy, Unrolled, previous
from reef.types import Array


def layout_of(policy: Policy, config: AlgorithmConfig, device: torch.device) -> Rows | Sequences:
    """Return how a rollout is cut for this policy."""
    if isinstance(policy, RecurrentPolicy):
        return Sequences(policy, device, config.model.max_seq_len)
    return Rows(policy, device)


class Sequences:
    """Cuts minibatches of sequences of `length` steps each.

    The state before a sequence is computed by the current policy from the earlier steps of the rollout; no gradient
    flows further back. Episodes may start and end inside a sequence.
    """

    def __init__(self, policy: RecurrentPolicy, device: torch.device, length: int) -> None:
        self.policy, self.device, self.length = policy, device, length

    def read(self, batch: Rollout, *, with_values: bool = True) -> Reading:
        """Values [T, B], and as inputs sequences [S, L, ...] with the states before them [S, ...]."""
        steps = inputs_of(batch)
        cut = {name: self._cut(array) for name, array in steps.items()}
        state = {name: self._tensor(batch.state_in[name]) for name in self.policy.memory_shapes}
        starts: list[Columns] = []
        found: list[Tensor] = []
        with torch.inference_mode():
            for before, unrolled in self._unroll(cut, state):
                starts.append(before)
                state = unrolled.state
                found.append(unrolled.values)
            values = next_values = np.zeros_like(batch.rewards)
            if with_values:
                values = _in_time(found, batch)
                next_values = self._next_values(batch, steps, cut, starts, values)
        kept = self._kept(batch.mask)
        first = {name: torch.stack([start[name] for start in starts]).flatten(0, 1)[kept] for name in state}
        inputs = {name: column.flatten(0, 1)[kept] for name, column in cut.items()} | first
        return Reading(values, next_values, inputs)

    def dist_inputs(self, batch: Rollout) -> Array:
        """[T, B, D]: the inputs of the current policy's action distribution in each step."""
        cut = {name: self._cut(array) for name, array in inputs_of(batch).items()}
        state = {name: self._tensor(batch.state_in[name]) for name in self.policy.memory_shapes}
        with torch.inference_mode():
            return _in_time([unrolled.dist_inputs for _, unrolled in self._unroll(cut, state)], batch)

    def _unroll(self, cut: Columns, state: Columns) -> Iterator[tuple[Columns, Unrolled]]:
        """The state before each chunk, and the outputs for it; the first chunk begins with `state`."""
        for chunk in range(len(cut["obs"])):
            unrolled = self.policy.unroll({name: columns[chunk] for name, columns in cut.items()} | state)
            yield state, unrolled
            state = unrolled.state

    def _next_values(
        self, batch: Rollout, steps: dict[str, Array], cut: Columns, starts: list[Columns], values: Array
    ) -> Array:
        """[T, B]: where a step is the last one before a cut, the sequence is computed again with its true successor."""
        next_values = np.zeros_like(values)
        next_values[:-1] = values[1:]
        times, columns = np.nonzero(cut_ends(batch))
        chunks, places = times // self._length(batch.mask), times % self._length(batch.mask)
        rows, after = np.arange(len(times)), places + 1

        def extended(name: str) -> Tensor:
            one = cut[name][chunks, columns]
            return torch.cat([one, torch.zeros_like(one[:, :1])], 1)

        ending = {name: extended(name) for name in cut}
        ending["obs"][rows, after] = self._tensor(batch.next_obs[times, columns])
        ending[BEGINS][rows, after] = False
        for name, taken in zip(PREVIOUS, taken_in(batch), strict=True):
            if name in steps:
                before = np.concatenate([taken[times, columns][:, None], steps[name][times, columns][:, :-1]], 1)
                ending[name][rows, after] = self._tensor(before)
        state = {name: torch.stack([start[name] for start in starts])[chunks, columns] for name in starts[0]}
        next_values[times, columns] = self.policy.unroll(ending | state).values[rows, after].cpu().numpy()
        return next_values

    def columns(
        self,
        mask: Array,  # [T, B] bool
        arrays: Mapping[str, Array],  # [T, B, ...] each
    ) -> Columns:
        """Sequences [S, L, ...], including the mask; those without a valid step are dropped."""
        kept = self._kept(mask)
        masked = {**arrays, "mask": mask}
        return {name: self._cut(array).flatten(0, 1)[kept] for name, array in masked.items()}

    def minibatches(
        self,
        columns: Columns,
        size: int,
        passes: int,
        generator: torch.Generator | None,
        rank: int = 0,
        world_size: int = 1,
    ) -> Iterator[Columns]:
        """`passes` over whole sequences in random order, about `size` steps per minibatch over all learners.

        The loss uses only valid steps. All learners have the same number of sequences, but not of valid steps: `SHARE`
        is the weight of a learner's mean.
        """
        part = max(size // columns["mask"].shape[1] // world_size, 1)
        if len(columns["mask"]) < world_size:
            columns = repeated(columns, world_size)
        for whole in shuffled(columns, part * world_size, passes, generator):
            yield learner_part(self.policy, whole, rank, world_size)

    def _length(self, mask: Array) -> int:
        return min(self.length, len(mask))

    def _cut(self, array: Array) -> Tensor:
        """[T, B, ...] -> [chunks, B, L, ...], padded with zeros."""
        length = self._length(array)
        missing = -len(array) % length
        if missing:
            array = np.concatenate([array, np.zeros((missing, *array.shape[1:]), array.dtype)])
        return self._tensor(array.reshape(-1, length, *array.shape[1:]).swapaxes(1, 2))

    def _kept(self, mask: Array) -> Tensor:
        """Indices of the sequences [S] with at least one valid step."""
        return self._cut(mask).flatten(0, 1).any(1).nonzero().squeeze(1)

    def _tensor(self, array: Array) -> Tensor:
        return to_device(np.ascontiguousarray(array), self.device)


def taken_in(batch: Rollout) -> tuple[Array, Array]:
    """Actions [T, B, *action] and rewards [T, B] of which the policy reads those before a step, as when it acted."""
    return batch.actions, batch.extras.get(SAMPLED_REWARDS, batch.rewards)


def inputs_of(batch: Rollout) -> dict[str, Array]:
    """What a recurrent policy reads in each step, [T, B, ...]."""
    begins = np.zeros_like(batch.terminated)
    begins[1:] = batch.done[:-1] | ~batch.mask[:-1]
    steps = {"obs": batch.obs, BEGINS: begins}
    for name, taken in zip(PREVIOUS, taken_in(batch), strict=True):
        if name in batch.state_in:
            steps[name] = previous(taken, batch.state_in[name], batch.done | ~batch.mask)
    return steps


def learner_part(policy: RecurrentPolicy, whole: Columns, rank: int, world_size: int) -> Columns:
    """This learner's sequences of a minibatch [S, L, ...]: whole where the policy reads them, else their valid steps.

    `SHARE` is the weight of this learner's mean, because learners do not have the same number of valid steps.
    """
    part = len(whole["mask"]) // world_size
    own = {name: column[rank * part : (rank + 1) * part] for name, column in whole.items()}
    valid = own.pop("mask").flatten().nonzero().squeeze(1)
    read = {name: column for name, column in own.items() if name in policy.inputs}
    steps = {n: c.flatten(0, 1).index_select(0, valid) for n, c in own.items() if n not in read}
    if world_size > 1:
        all_steps = whole["mask"][: part * world_size].sum()
        steps[SHARE] = len(valid) * world_size / all_steps
    return {**read, **steps, VALID: valid}


def _in_time(chunks: list[Tensor], batch: Rollout) -> Array:
    """Outputs [B, L, ...] of each chunk as [T, B, ...]."""
    found: Array = torch.stack(chunks).transpose(1, 2).flatten(0, 1)[: batch.shape[0]].cpu().numpy()
    return found
