"""Prioritized experience replay (Schaul et al. 2016, proportional variant) with a wide sum tree."""

from __future__ import annotations

import logging

import numpy as np

from reef.batch import Transitions
from reef.errors import ConfigError, DamagedCheckpointError
from reef.replay.buffer import ReplayBuffer
from reef.trees import USE_ANOTHER, require_like
from reef.types import Array, State

log = logging.getLogger(__name__)
# Children per node: few levels, each one small numpy operation. Measured fastest for 50,000 to 1 million leaves.
FANOUT = 16


class SumTree:
    """Sums over `capacity` non-negative leaves; every call handles a whole batch, level by level."""

    def __init__(self, capacity: int) -> None:
        self.levels: list[Array] = []  # leaves first, [nodes, FANOUT] float64
        self._bounds: list[Array] = []  # [nodes, 1 + FANOUT] running sums over the children, starting from 0
        while capacity > 1 or not self.levels:
            capacity = -(-capacity // FANOUT)
            self.levels.append(np.zeros((capacity, FANOUT)))
            self._bounds.append(np.zeros((capacity, 1 + FANOUT)))
        self._flat = [level.reshape(-1) for level in self.levels]

    @property
    def total(self) -> float:
        """The sum of all leaves."""
        return float(self._bounds[-1][0, -1])

    def __getitem__(self, leaves: Array | slice) -> Array:
        return self._flat[0][leaves]

    def __setitem__(self, leaves: Array, values: Array | float) -> None:
        """Set leaves [N]; sums are computed from the children again, so that rounding errors do not accumulate."""
        for flat, level, bounds in zip(self._flat, self.levels, self._bounds, strict=True):
            flat[leaves] = values
            leaves = leaves // FANOUT
            sums = np.add.accumulate(level.take(leaves, axis=0), axis=1)
            bounds[leaves, 1:] = sums
            values = sums[:, -1]

    def find(self, mass: Array) -> Array:
        """For each mass [N] in [0, total), the leaf at which the running sum over the leaves exceeds it."""
        node, row = np.zeros(len(mass), np.intp), np.arange(len(mass))
        for bounds in reversed(self._bounds):
            inside = bounds.take(node, axis=0)
            child = (inside > mass[:, None]).argmax(axis=1) - 1
            np.maximum(child, 0, out=child)  # the mass was rounded up to the node's own sum
            mass = mass - inside[row, child]
            node = node * FANOUT + child
        return node


class PrioritizedReplay(ReplayBuffer):
    """Samples transition i with probability p_i^alpha / sum_k p_k^alpha, where p_i = |TD error| + eps.

    Samples contain extras["weights"] [N], the importance weights (size * P(i))^-beta divided by their maximum in the
    batch, and extras["indices"] [N] for `update_priorities`. New transitions without TD errors of their own get the
    largest priority seen so far.
    """

    def __init__(self, capacity: int, *, alpha: float = 0.6, beta: float = 0.4, eps: float = 1e-6) -> None:
        super().__init__(capacity)
        for name, value in (("alpha", alpha), ("beta", beta)):
            if not 0.0 <= value <= 1.0:
                raise ConfigError(f"replay_buffer_config.prioritized_replay_{name}={value} must be from 0 to 1.")
        if eps <= 0.0:
            raise ConfigError(f"replay_buffer_config.prioritized_replay_eps={eps} must be above 0.")
        self.alpha, self.beta, self.eps = alpha, beta, eps
        self._tree = SumTree(capacity)
        self._largest = 1.0  # of p_i^alpha

    def add(self, transitions: Transitions, td_errors: Array | None = None) -> Array:
        """Store [N] transitions with priorities from their TD errors [N], or else the largest priority so far."""
        rows = super().add(transitions)
        if td_errors is None:
            self._tree[rows] = self._largest
        else:
            self.update_priorities(rows, td_errors[-len(rows) :])
        return rows

    def sample(self, count: int, rng: np.random.Generator) -> Transitions:
        """Sample [count] transitions, one from each of `count` equal parts of the total priority, in random order."""
        mass = rng.permutation(count) + rng.random(count)
        mass *= self._tree.total / count
        rows = np.minimum(self._tree.find(mass), len(self) - 1)
        weights = self._tree[rows] ** -self.beta  # constant factors cancel in the division below
        return self.take(rows, {"weights": (weights / weights.max()).astype(np.float32), "indices": rows})

    def update_priorities(self, indices: Array, td_errors: Array) -> None:
        """Set the priorities of rows [N] from their new TD errors [N], of either sign."""
        priorities = (np.abs(td_errors) + self.eps) ** self.alpha
        self._largest = max(self._largest, float(priorities.max()))
        self._tree[indices] = priorities

    def state(self) -> State:
        """Copy the stored transitions and priorities."""
        return super().state() | {"priorities": self._tree[slice(len(self))].copy(), "largest": self._largest}

    def set_state(self, state: State) -> None:
        """Restore what `state` returned; a smaller buffer keeps the newest transitions.

        Transitions that were stored without priorities get the priority of new ones.
        """
        super().set_state(state)
        count = min(state["added"], state["capacity"])
        own = {"priorities": np.zeros(count), "largest": 1.0}
        require_like(state, own, "the replay buffer", optional=own)
        if state.get("largest", 1.0) <= 0.0 or (state.get("priorities", np.ones(1)) < 0.0).any():
            raise DamagedCheckpointError(f"the replay buffer holds priorities below 0. {USE_ANOTHER}")
        self._tree, self._largest = SumTree(self.capacity), state.get("largest", 1.0)
        priorities: Array | float = self._largest
        if "priorities" in state:
            priorities = state["priorities"][self._kept(state)]
        else:
            log.warning(
                "replay_buffer_config.prioritized_replay=True: the checkpoint was written without it, so its "
                "transitions begin with equal priorities"
            )
        self._tree[np.arange(len(self))] = priorities
