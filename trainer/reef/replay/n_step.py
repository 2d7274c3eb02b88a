"""n-step transitions: rewards summed over up to n steps, and the successor n steps on (Sutton 1988)."""

from __future__ import annotations

import numpy as np

from reef.batch import TRANSITION_COLUMNS, Rollout, Transitions
from reef.types import Array, State


class NStep:
    """Turns the fragments of one worker, in order, into n-step transitions, every step exactly once.

    A step comes out as soon as its n steps are known or its episode ends. Until then the last n - 1 steps of each
    column wait for the next fragment. extras["discounts"] [N] holds gamma^k for the k <= n steps that were summed.
    """

    def __init__(self, n: int, gamma: float) -> None:
        self.n = n
        self._powers = np.power(gamma, np.arange(n + 1)).astype(np.float32)
        # name -> [<= n - 1, B, ...]; "open": which steps still wait, "fragment_index" [B]: of which fragment they are
        self._carry: dict[str, Array] = {}

    def add(self, rollout: Rollout, fragment_index: Array | None = None) -> Transitions:
        """Take the next fragment [T, B] and return the transitions that are complete.

        Where `fragment_index` [B] does not count on from the fragment before, as of a replaced worker, the steps
        that wait are truncated; None: all columns go on.
        """
        if self.n == 1:
            return one_step(rollout, float(self._powers[1]))
        steps = {name: getattr(rollout, name) for name in TRANSITION_COLUMNS} | {"open": rollout.mask}
        if self._carry and self._carry["open"].shape[1] == rollout.shape[1]:
            if fragment_index is not None:
                self._carry["truncated"][-1] |= fragment_index != self._carry["fragment_index"] + 1
            steps = {name: np.concatenate((self._carry[name], column)) for name, column in steps.items()}
        transitions, waiting = windows(steps, self.n, self._powers)
        kept = {name: column[1 - self.n :] for name, column in steps.items()}
        # copies: fragments are views of arrays that the worker fills again
        self._carry = {name: column.copy() for name, column in kept.items()} | {"open": waiting[1 - self.n :]}
        if fragment_index is not None:
            self._carry["fragment_index"] = fragment_index
        return transitions

    def state(self) -> State:
        """Copy the steps that wait."""
        return {name: column.copy() for name, column in self._carry.items()}

    def set_state(self, state: State) -> None:
        """Take back what `state` returned."""
        self._carry = {name: np.array(column) for name, column in state.items()}


def one_step(rollout: Rollout, gamma: float) -> Transitions:
    """The transitions of one rollout as they are, each with the discount gamma."""
    flat = rollout.flatten()
    discounts = np.full(len(flat), gamma, np.float32)
    return Transitions(**{name: getattr(flat, name) for name in TRANSITION_COLUMNS}, extras={"discounts": discounts})


def windows(
    steps: dict[str, Array],  # [T, B, ...]
    n: int,
    powers: Array,  # [n + 1] float32, gamma^k
) -> tuple[Transitions, Array]:
    """Sum over the window of each open step, and return the finished ones and the mask [T, B] of those that wait.

    A window ends at its n-th step, at the end of its episode, or before a dead step (a column that was cut).
    """
    rewards, open_ = steps["rewards"], steps["open"]
    length = len(rewards)
    ends = steps["terminated"] | steps["truncated"]
    ends[:-1] |= ~open_[1:] & open_[:-1]
    returns = rewards.copy()
    reach = np.ones(rewards.shape, np.intp)  # steps summed so far
    going = ~ends
    for k in range(1, min(n, length)):
        ahead = going[: length - k]
        returns[: length - k] += powers[k] * rewards[k:] * ahead
        reach[: length - k] += ahead
        going[: length - k] = ahead & ~ends[k:]
    finished = open_ & ((reach == n) | ~going)
    first = np.flatnonzero(finished)
    last = first + (reach.take(first) - 1) * rewards.shape[1]

    def rows(name: str, where: Array) -> Array:
        column = steps[name]
        return column.reshape(-1, *column.shape[2:]).take(where, axis=0)

    transitions = Transitions(
        obs=rows("obs", first),
        actions=rows("actions", first),
        rewards=returns.take(first),
        next_obs=rows("next_obs", last),
        terminated=rows("terminated", last),
        truncated=rows("truncated", last),
        extras={"discounts": powers.take(reach.take(first))},
    )
    return transitions, open_ & ~finished
