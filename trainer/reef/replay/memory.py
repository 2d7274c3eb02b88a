"""The replay memory of an off-policy algorithm: one buffer per policy, filled from the workers' fragments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from reef.batch import Sample, Transitions
from reef.errors import DamagedCheckpointError
from reef.replay.buffer import ReplayBuffer
from reef.replay.lockstep import as_rows, together
from reef.replay.n_step import NStep
from reef.replay.prioritized import PrioritizedReplay
from reef.replay.sequences import SequenceCutter, SequenceLengths
from reef.replay.settings import ReplayBufferConfig
from reef.spaces import Layout
from reef.trees import USE_ANOTHER, require_like
from reef.types import Array, PolicyId, RecurrentState, State


class ReplayMemory:
    """What an algorithm remembers, in its own process."""

    def __init__(
        self,
        settings: ReplayBufferConfig,
        *,
        n_step: int = 1,  # steps
        gamma: float,
        gammas: Mapping[PolicyId, float] | None = None,  # of the policies that are kept; None: all are, with `gamma`
        seed: int | None = None,
        index: int = 0,
        sequences: SequenceLengths | None = None,
        lockstep_envs: int = 0,
    ) -> None:
        """`index`: of this memory, if there are several; each has a random stream of its own.

        With `sequences` it holds those, and not n-step transitions. With `lockstep_envs`, the environments of
        a worker, a row has the transitions [A, ...] of the policy's agents in one step, and all policies get those of
        the same steps. An agent may be absent in some of them.
        """
        self.settings, self.n_step, self.gamma, self.sequences = settings, n_step, gamma, sequences
        self.gammas, self.lockstep_envs = gammas, lockstep_envs
        # 2: a random stream other than the workers'.
        self.rng = np.random.default_rng(None if seed is None else [seed, index, 2])
        self.buffers: dict[PolicyId, ReplayBuffer] = {}
        self._n_steps: dict[str, NStep | SequenceCutter] = {}  # by "policy/worker"

    def __len__(self) -> int:
        return sum(len(buffer) for buffer in self.buffers.values())

    def add(self, sample: Sample) -> None:
        """Store the fragments of one worker as n-step transitions, or as sequences."""
        kept = {name: one for name, one in sample.rollouts.items() if self.gammas is None or name in self.gammas}
        if self.lockstep_envs:
            for policy_id, steps in together(kept, self._gamma, self.lockstep_envs).items():
                if len(steps):  # else no environment worked
                    self._buffer(policy_id).add(steps)
            return
        for policy_id, rollout in kept.items():
            if not rollout.shape[0]:  # none of its agents had a turn
                continue
            key = f"{policy_id}/{sample.worker_index}"
            if key not in self._n_steps:
                self._n_steps[key] = self._make_steps(policy_id)
            transitions = self._n_steps[key].add(rollout, sample.fragment_index.get(policy_id))
            if transitions is not None and len(transitions):
                td_errors = transitions.extras.pop("td_errors", None)  # they become priorities and are not stored
                self._buffer(policy_id).add(transitions, td_errors)

    def keep(self, gammas: Mapping[PolicyId, float]) -> None:
        """Keep steps of these policies alone, with these discounts."""
        self.gammas = gammas
        self.buffers = {name: buffer for name, buffer in self.buffers.items() if name in gammas}
        self._n_steps = {key: one for key, one in self._n_steps.items() if key.rpartition("/")[0] in gammas}

    def sample(self, count: int) -> dict[PolicyId, Transitions]:
        """Sample [count] transitions, or sequences, for every policy that has any.

        In lockstep they are those of [count] environment steps: as many as agents of the policy acted in them.
        """
        if self.lockstep_envs and self.buffers:
            rows = self.rng.integers(min(map(len, self.buffers.values())), size=count)
            return {policy_id: as_rows(buffer.take(rows)) for policy_id, buffer in self.buffers.items()}
        return {policy_id: buffer.sample(count, self.rng) for policy_id, buffer in self.buffers.items()}

    def update_priorities(self, policy_id: PolicyId, indices: Array, td_errors: Array) -> None:
        """Set the priorities of sampled transitions [N] from their TD errors [N]; only for a prioritized buffer."""
        buffer = self.buffers[policy_id]
        assert isinstance(buffer, PrioritizedReplay)
        buffer.update_priorities(indices, td_errors)

    def state(self) -> State:
        """Contents, priorities, incomplete n-step windows and the random generator."""
        return {
            "rng": self.rng.bit_generator.state,
            "buffers": {policy_id: buffer.state() for policy_id, buffer in self.buffers.items()},
            "n_steps": {key: n_step.state() for key, n_step in self._n_steps.items()},
        }

    def set_state(self, state: State) -> None:
        """The reverse of `state`; the buffers' capacity may have changed."""
        self.rng.bit_generator.state = state["rng"]
        self.buffers, self._n_steps = {}, {}
        for policy_id, stored in state["buffers"].items():
            self._buffer(policy_id).set_state(stored)
        for key, stored in state["n_steps"].items():
            self._n_steps[key] = self._make_steps(key.rpartition("/")[0])
            self._n_steps[key].set_state(stored)

    def _gamma(self, policy_id: PolicyId) -> float:
        return self.gamma if self.gammas is None else self.gammas.get(policy_id, self.gamma)

    def _make_steps(self, policy_id: PolicyId) -> NStep | SequenceCutter:
        return NStep(self.n_step, self._gamma(policy_id)) if self.sequences is None else SequenceCutter(self.sequences)

    def _buffer(self, policy_id: PolicyId) -> ReplayBuffer:
        if policy_id not in self.buffers:
            self.buffers[policy_id] = make_buffer(self.settings, 1 if self.sequences is None else self.sequences.total)
        return self.buffers[policy_id]


def make_buffer(settings: ReplayBufferConfig, row_steps: int = 1) -> ReplayBuffer:
    """Make an empty buffer for these settings, whose rows have this number of steps."""
    rows = settings.capacity // row_steps
    if not settings.prioritized_replay:
        return ReplayBuffer(rows)
    return PrioritizedReplay(
        rows,
        alpha=settings.prioritized_replay_alpha,
        beta=settings.prioritized_replay_beta,
        eps=settings.prioritized_replay_eps,
    )


def check_memory(
    state: Any,
    layouts: Mapping[PolicyId, tuple[Layout, Layout]],
    sequences: SequenceLengths | None = None,
    recurrent: Mapping[PolicyId, RecurrentState] | None = None,  # of no column, by policy; with `sequences`
    agents: Mapping[PolicyId, int] | None = None,  # whose steps are in one row, by policy; None: a row is one step
) -> None:
    """Raise `CheckpointError` unless a stored memory fits the observation and action layouts, by policy."""
    require_like(state, {"rng": {}, "buffers": {}, "n_steps": {}}, "memory")
    for policy_id, stored in state["buffers"].items():
        key = f"memory/buffers/{policy_id}/columns"
        require_like(stored, {"columns": {}}, f"memory/buffers/{policy_id}")
        if sequences is None or recurrent is None:
            row = (0,) if agents is None else (0, agents[policy_id])
            own = _no_steps(*layouts[policy_id], row) | {"discounts": np.zeros(row, np.float32)}
            own |= {} if agents is None else {"acted": np.zeros(row, np.bool_)}
        else:
            shape = (0, sequences.total)
            own = _no_steps(*layouts[policy_id], shape) | {"mask": np.zeros(shape, np.bool_)} | recurrent[policy_id]
        require_like({name: column[:0] for name, column in stored["columns"].items()}, own, key)
    for name, carried in state["n_steps"].items():
        if carried and sequences is not None and recurrent is not None:
            policy_id = name.rpartition("/")[0]
            _check_waiting(carried, layouts[policy_id], recurrent[policy_id], f"memory/n_steps/{name}")
            continue
        if carried:
            own = _no_steps(*layouts[name.rpartition("/")[0]], (0, 0)) | {"open": np.zeros((0, 0), np.bool_)}
            steps = {column: values[:0, :0] for column, values in carried.items() if column != "fragment_index"}
            require_like(steps, own, f"memory/n_steps/{name}")
            shapes = {values.shape[:2] for column, values in carried.items() if column != "fragment_index"}
            if len(shapes) != 1:
                raise DamagedCheckpointError(f"memory/n_steps/{name} holds unequal numbers of steps. {USE_ANOTHER}")


def _check_waiting(carried: Any, layouts: tuple[Layout, Layout], recurrent: RecurrentState, key: str) -> None:
    """Raise `CheckpointError` unless what a `SequenceCutter` stored fits."""
    require_like(carried, {"steps": {}, "states": {}, "starts": np.zeros(0, np.int64)}, key, lengths=False)
    own = _no_steps(*layouts, (0, 0)) | {"mask": np.zeros((0, 0), np.bool_)}
    require_like({name: column[:0, :0] for name, column in carried["steps"].items()}, own, f"{key}/steps")
    states = {name: values[:0, :0] for name, values in carried["states"].items()}
    require_like(states, {name: values[None][:0] for name, values in recurrent.items()}, f"{key}/states")
    steps = {values.shape[:2] for values in carried["steps"].values()}
    fragments = {values.shape[:2] for values in carried["states"].values()}
    if len(steps) != 1 or fragments != {(len(carried["starts"]), next(iter(steps))[1])}:
        raise DamagedCheckpointError(f"{key} holds unequal numbers of steps. {USE_ANOTHER}")


def _no_steps(observations: Layout, actions: Layout, shape: tuple[int, ...]) -> dict[str, Array]:
    obs = np.zeros((*shape, *observations.shape), observations.dtype)
    return {
        "obs": obs,
        "actions": np.zeros((*shape, *actions.shape), actions.action_dtype),
        "rewards": np.zeros(shape, np.float32),
        "next_obs": obs,
        "terminated": np.zeros(shape, np.bool_),
        "truncated": np.zeros(shape, np.bool_),
    }
