"""Replayed sequences, for Q-networks with a memory (Kapturowski et al. 2019)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from reef.batch import Rollout, Transitions, cut_ends, transition_arrays
from reef.learn.device import to_device
from reef.learn.minibatches import in_order
from reef.learn.sequences import inputs_of, learner_part, taken_in
from reef.nn.dueling import RecurrentQPolicy
from reef.nn.gradients import Columns, Loss
from reef.nn.recurrent import BEGINS, PREVIOUS, SAMPLED_REWARDS, VALID
from reef.replay.n_step import sums
from reef.replay.sequences import SequenceLengths
from reef.types import Array

# Of the absolute TD errors of a sequence, its priority is this part of the largest and the rest of the mean.
LARGEST = 0.9


class Replayed(NamedTuple):
    """What networks read of S sequences of W steps, and the n-step sums of their last L steps."""

    # [S, W, ...] each: the network's inputs
    inputs: Columns
    # [S, W', ...] the same; where an episode is cut off among the last L steps its true successor comes in between
    with_successors: Columns
    # [S, ...] each: the state before the first step
    state: Columns
    # [S, L] where the successors of the n-step sums are, counted from the first of the L steps
    places: Tensor
    # [S L]
    rewards: Tensor
    terminated: Tensor
    discounts: Tensor


class ReplayedSequences:
    """Reads sequences whose first `lengths.burn_in` steps only bring the state up to date, without a gradient."""

    def __init__(
        self,
        policy: RecurrentQPolicy,
        device: torch.device,
        lengths: SequenceLengths,
        *,
        n_step: int,
        gamma: float,
        zero_states: bool,  # begin with zeros, not with the state that is stored
    ) -> None:
        self.policy, self.device, self.burn_in, self.n_step = policy, device, lengths.burn_in, n_step
        self.powers = np.power(gamma, np.arange(n_step + 1)).astype(np.float32)
        self.zero_states = zero_states

    def read(self, batch: Transitions) -> Replayed:
        """Put a batch [S, W, ...] on the device, in the form that networks read."""
        steps = in_time(batch, self.policy)
        inputs = inputs_of(steps)
        cut = cut_ends(steps) & ~steps.terminated
        cut[: self.burn_in] = False
        longer, places = self._with_successors(steps, inputs, cut)
        learned = slice(self.burn_in, None)
        ends = steps.done | cut_ends(steps)
        rewards, reach, _ = sums(steps.rewards[learned], ends[learned], self.n_step, self.powers)
        last = np.arange(len(reach))[:, None] + reach - 1
        terminated = np.take_along_axis(steps.terminated[learned], last, 0)
        after = np.take_along_axis(places[learned], last, 0) + 1 - self.burn_in
        # A step that terminates has no successor.
        after = np.minimum(after, len(longer["obs"]) - 1 - self.burn_in)
        state = {name: self._tensor(steps.state_in[name]) for name in self.policy.memory_shapes}
        if self.zero_states:
            state = {name: torch.zeros_like(values) for name, values in state.items()}
        return Replayed(
            self._by_sequence(inputs),
            self._by_sequence(longer),
            state,
            self._tensor(after.T),
            *(self._tensor(array.T).flatten() for array in (rewards, terminated, self.powers[reach])),
        )

    def _with_successors(self, steps: Rollout, inputs: dict[str, Array], cut: Array) -> tuple[dict[str, Array], Array]:
        """The inputs [W', S, ...] with the successor after each step of `cut`; [W, S] where the other steps are."""
        places = np.arange(len(cut))[:, None] + np.cumsum(cut, 0) - cut
        columns = np.arange(cut.shape[1])
        _, cut_columns = np.nonzero(cut)
        newest = dict(zip(PREVIOUS, taken_in(steps), strict=True))
        longer: dict[str, Array] = {}
        for name, values in inputs.items():
            found = np.zeros((len(cut) + int(cut.sum(0).max()), *values.shape[1:]), values.dtype)
            found[places, columns] = values
            if name == "obs":
                found[places[cut] + 1, cut_columns] = steps.next_obs[cut]
            elif name in newest:
                before = np.concatenate([newest[name][cut][:, None], values[cut][:, :-1]], 1)
                found[places[cut] + 1, cut_columns] = before
            longer[name] = found
        return longer, places

    def burned_in(self, network: RecurrentQPolicy, replayed: Replayed) -> Columns:
        """[S, ...] each: the network's state before the steps that are learned from."""
        if not self.burn_in:
            return replayed.state
        first = {name: column[:, : self.burn_in] for name, column in replayed.inputs.items()}
        with torch.no_grad():
            return network.logits(first | replayed.state)[1]

    def successors(self, network: RecurrentQPolicy, replayed: Replayed) -> Tensor:
        """[S L, A] or [S L, A, atoms]: the network's logits for the successor of each n-step sum."""
        rest = {name: column[:, self.burn_in :] for name, column in replayed.with_successors.items()}
        logits, _ = network.logits(rest | self.burned_in(network, replayed))
        rows = torch.arange(len(logits), device=self.device)[:, None]
        return logits[rows, replayed.places].flatten(0, 1)

    def successor_obs(self, replayed: Replayed) -> Tensor:
        """[S L, *obs]: the observation of the successor of each n-step sum."""
        obs = replayed.with_successors["obs"][:, self.burn_in :]
        rows = torch.arange(len(obs), device=self.device)[:, None]
        return obs[rows, replayed.places].flatten(0, 1)

    def columns(self, batch: Transitions, replayed: Replayed, targets: Tensor) -> Columns:
        """What minibatches are cut from: [S, L, ...] each, and the states [S, ...]."""
        shape = replayed.places.shape
        inputs = {name: column[:, self.burn_in :] for name, column in replayed.inputs.items()}
        steps = {"actions": batch.actions[:, self.burn_in :], "mask": batch.extras["mask"][:, self.burn_in :]}
        if "weights" in batch.extras:
            steps["weights"] = np.broadcast_to(batch.extras["weights"][:, None], shape)
        columns = {name: self._tensor(array) for name, array in steps.items()}
        return (
            inputs
            | self.burned_in(self.policy, replayed)
            | columns
            | {"targets": targets.view(*shape, *targets.shape[1:])}
        )

    def minibatches(self, columns: Columns, size: int, rank: int, world_size: int) -> Iterator[Columns]:
        """This learner's part of minibatches of `size` sequences over all learners, in order."""
        for whole in in_order(columns, size):
            yield learner_part(self.policy, whole, rank, world_size)

    def with_priorities(self, loss: Loss, minibatch: Columns) -> Loss:
        """Replace the TD errors [N] of the steps by one number for each sequence [S]."""
        errors, valid, shape = loss.rows["td_errors"], minibatch[VALID], minibatch[BEGINS].shape
        every_step = errors.new_zeros(shape.numel()).index_copy(0, valid, errors.abs()).view(shape)
        counts = errors.new_zeros(shape.numel()).index_fill(0, valid, 1.0).view(shape).sum(1)
        priorities = LARGEST * every_step.amax(1) + (1 - LARGEST) * every_step.sum(1) / counts
        return loss._replace(stats=loss.stats | {"mean_td_error": errors.mean()}, rows={"td_errors": priorities})

    def _by_sequence(self, steps: dict[str, Array]) -> Columns:
        return {name: self._tensor(array.swapaxes(0, 1)) for name, array in steps.items()}

    def _tensor(self, array: Array) -> Tensor:
        return to_device(np.ascontiguousarray(array), self.device)


def in_time(batch: Transitions, policy: RecurrentQPolicy) -> Rollout:
    """Sequences [S, W, ...] as a rollout [W, S, ...]."""
    columns = transition_arrays(batch) | {"mask": batch.extras["mask"]}
    state = {name: batch.extras[name] for name in policy.initial_state(0)}
    extras = {name: batch.extras[name].swapaxes(0, 1) for name in (SAMPLED_REWARDS,) if name in batch.extras}
    return Rollout(**{name: column.swapaxes(0, 1) for name, column in columns.items()}, extras=extras, state_in=state)
