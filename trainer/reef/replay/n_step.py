"""n-step transitions: rewards summed over up to n steps, and the successor n steps later (Sutton 1988)."""

from __future__ import annotations

import numpy as np

from reef.batch import Rollout, Transitions, transition_arrays
from reef.types import Array, State

# What a worker may estimate of each step [T, B]: Q(s, a), and the value of the true successor.
STEP_VALUES = ("q_values", "next_values")


class NStep:
    """Turns the fragments of one worker, in order, into n-step transitions, each step exactly once.

    A step is returned as soon as its n steps are known or its episode ends. Until then the last n - 1 steps of each
    column wait for the next fragment. extras["discounts"] [N] contains gamma^k for the k <= n summed steps. Where
    rollouts have the extras `STEP_VALUES`, extras["td_errors"] [N] contains the n-step TD errors by those values.
    """

    def __init__(self, n: int, gamma: float) -> None:
        self.n = n
        self._powers = np.power(gamma, np.arange(n + 1)).astype(np.float32)
        # name -> [<= n - 1, B, ...]; "open": steps that still wait, "fragment_index" [B]: the fragment they are from
        self._carry: dict[str, Array] = {}

    def add(self, rollout: Rollout, fragment_index: Array | None = None) -> Transitions:
        """Add the next fragment [T, B] and return the complete transitions.

        Where `fragment_index` [B] does not follow that of the fragment before, for example after a worker was replaced,
        the waiting steps are truncated; None: all columns go on.
        """
        if self.n == 1:
            return one_step(rollout, float(self._powers[1]))
        steps = transition_arrays(rollout) | {"open": rollout.mask}
        steps |= {name: rollout.extras[name] for name in STEP_VALUES if name in rollout.extras}
        if self._carry and self._carry["open"].shape[1] == rollout.shape[1]:
            if fragment_index is not None:
                self._carry["truncated"][-1] |= fragment_index != self._carry["fragment_index"] + 1
            steps = {
                name: np.concatenate((self._carry[name], column))
                for name, column in steps.items()
                if name in self._carry
            }
        transitions, waiting = windows(steps, self.n, self._powers)
        kept = {name: column[1 - self.n :] for name, column in steps.items()}
        # Copies, because fragments are views of arrays that the worker will overwrite.
        self._carry = {name: column.copy() for name, column in kept.items()} | {"open": waiting[1 - self.n :]}
        if fragment_index is not None:
            self._carry["fragment_index"] = fragment_index
        return transitions

    def state(self) -> State:
        """Copy the waiting steps."""
        return {name: column.copy() for name, column in self._carry.items()}

    def set_state(self, state: State) -> None:
        """Restore what `state` returned."""
        self._carry = {name: np.array(column) for name, column in state.items()}


def one_step(rollout: Rollout, gamma: float) -> Transitions:
    """The 1-step transitions of one rollout, each with the discount gamma."""
    flat = rollout.flatten()
    discounts = np.full(len(flat), gamma, np.float32)
    transitions = Transitions(**transition_arrays(flat), extras={"discounts": discounts})
    if all(name in flat.extras for name in STEP_VALUES):
        add_td_errors(transitions, *(flat.extras[name] for name in STEP_VALUES))
    return transitions


def to_the_end(rollout: Rollout, gamma: float) -> Transitions:
    """The transitions of a whole rollout [T, B], each summed to the end of its episode or of the rollout."""
    steps = transition_arrays(rollout) | {"open": rollout.mask}
    ends = _ends(steps)
    ends[-1] = True
    powers = np.power(gamma, np.arange(len(ends) + 1)).astype(np.float32)
    returns, reach = sums_to_the_end(steps["rewards"], ends, gamma)
    return _transitions(steps, steps["open"], returns, reach, powers)


def add_td_errors(transitions: Transitions, q_values: Array, next_values: Array) -> None:
    """Add extras["td_errors"]: r + gamma^n V(s') - Q(s, a), each [N]."""
    rest = transitions.extras["discounts"] * next_values * ~transitions.terminated
    transitions.extras["td_errors"] = transitions.rewards + rest - q_values


def sums(
    rewards: Array,  # [T, B]
    ends: Array,  # [T, B] bool: no sum goes beyond this step
    n: int,
    powers: Array,  # [n + 1] float32, gamma^k
) -> tuple[Array, Array, Array]:
    """[T, B] each: the sums from each step on, the number of steps in them, and whether more could follow."""
    length = len(rewards)
    returns = rewards.copy()
    reach = np.ones(rewards.shape, np.intp)
    going = ~ends
    for k in range(1, min(n, length)):
        ahead = going[: length - k]
        returns[: length - k] += np.where(ahead, powers[k] * rewards[k:], 0)  # a dead step may hold anything
        reach[: length - k] += ahead
        going[: length - k] = ahead & ~ends[k:]
    return returns, reach, going


def sums_to_the_end(
    rewards: Array,  # [T, B]
    ends: Array,  # [T, B] bool: no sum goes beyond this step; the last row is True
    gamma: float,
) -> tuple[Array, Array]:
    """[T, B] each: the sums from each step to the next end, and the number of steps in them.

    The sums of k steps that no end cuts off, and those of k steps behind them, are the sums of 2 k steps.
    """
    returns, reach, going = rewards.astype(np.float64), np.ones(rewards.shape, np.intp), ~ends
    k = 1
    while going.any():
        ahead = going[:-k]
        returns[:-k] += np.where(ahead, gamma**k * returns[k:], 0)
        reach[:-k] += np.where(ahead, reach[k:], 0)
        going[:-k] = ahead & going[k:]
        k *= 2
    return returns.astype(np.float32), reach


def windows(
    steps: dict[str, Array],  # [T, B, ...]
    n: int,
    powers: Array,  # [n + 1] float32, gamma^k
) -> tuple[Transitions, Array]:
    """Sum over the window of each open step; return the finished transitions and the mask [T, B] of waiting steps.

    A window ends at its n-th step, at the end of its episode, or before a dead step (a column that was cut off).
    """
    open_ = steps["open"]
    returns, reach, going = sums(steps["rewards"], _ends(steps), n, powers)
    finished = open_ & ((reach == n) | ~going)
    return _transitions(steps, finished, returns, reach, powers), open_ & ~finished


def _ends(steps: dict[str, Array]) -> Array:
    """[T, B] bool: the ends of episodes, and steps before a dead step."""
    ends: Array = steps["terminated"] | steps["truncated"]
    ends[:-1] |= ~steps["open"][1:] & steps["open"][:-1]
    return ends


def _transitions(
    steps: dict[str, Array],  # [T, B, ...]
    chosen: Array,  # [T, B] bool: the first steps of the transitions
    returns: Array,  # [T, B]
    reach: Array,  # [T, B], the number of steps in each sum
    powers: Array,  # [n + 1] float32, gamma^k
) -> Transitions:
    first = np.flatnonzero(chosen)
    last = first + (reach.take(first) - 1) * chosen.shape[1]

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
    if all(name in steps for name in STEP_VALUES):
        add_td_errors(transitions, rows("q_values", first), rows("next_values", last))
    return transitions
