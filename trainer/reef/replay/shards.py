"""Replay memory in shards: each stores a part of the fragments, and draws whole train batches from them."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from reef.batch import Sample, Transitions
from reef.replay.memory import ReplayMemory
from reef.replay.prioritized import PrioritizedReplay
from reef.replay.settings import ReplayBufferConfig
from reef.types import Array, PolicyId, State

log = logging.getLogger(__name__)
Counts = dict[PolicyId, int]


class ReplayShard(ReplayMemory):
    """One shard, in any process."""

    def draw(self, count: int) -> tuple[dict[PolicyId, Transitions], Counts]:
        """As `sample`, with the number of transitions that each buffer has ever got."""
        return self.sample(count), {policy_id: buffer.added for policy_id, buffer in self.buffers.items()}

    def reprioritize(self, td_errors: dict[PolicyId, tuple[Array, Array]], added: Counts) -> None:
        """Set priorities from (rows [N], TD errors [N]) by policy; those of transitions replaced since are left out.

        `added`: as `draw` returned it with these rows.
        """
        for policy_id, (rows, errors) in td_errors.items():
            buffer = self.buffers[policy_id]
            kept = (rows - added[policy_id]) % buffer.capacity >= buffer.added - added[policy_id]
            if kept.any() and isinstance(buffer, PrioritizedReplay):
                buffer.update_priorities(rows[kept], errors[kept])

    def set_state(self, state: State | None) -> None:
        """Restore what `state` returned; None empties it."""
        super().set_state(state or {"rng": self.rng.bit_generator.state, "buffers": {}, "n_steps": {}})

    def ping(self) -> None:
        """Answer a health probe."""

    def stop(self) -> None:
        """Do nothing: memory goes with the process."""


class Drawn(NamedTuple):
    """A train batch for each policy, from one shard."""

    shard: int
    restarts: int  # of the shard, until then
    batches: dict[PolicyId, Transitions]
    added: Counts


class ReplayShards(ABC):
    """`count` shards with equal parts of the capacity; fragments go to them in turn.

    So n-step sums end with their fragment: the next one goes to another shard.
    """

    def __init__(
        self,
        settings: ReplayBufferConfig,
        *,
        count: int,
        batch_size: int,  # transitions of each policy
        n_step: int,
        gamma: float,
        seed: int | None,
    ) -> None:
        """`settings`: of all shards together."""
        self.capacity = -(-settings.capacity // count)  # of one shard
        self._arguments: dict[str, Any] = {
            "settings": settings.copy().assign({"capacity": self.capacity}),
            "n_step": n_step,
            "gamma": gamma,
            "seed": seed,
        }
        self.batch_size = batch_size
        # Environment steps in each shard.
        self.sizes = [0] * count
        # How often each was lost and began again, empty.
        self.restarts = [0] * count
        # 3: a random stream other than those of shards and workers.
        self._rng = np.random.default_rng(None if seed is None else [seed, 0, 3])
        self._turn = 0
        self._arrived: deque[Drawn] = deque()

    @property
    @abstractmethod
    def healthy(self) -> Sequence[int]:
        """The shards that take calls."""

    @property
    def stored(self) -> int:
        """Environment steps in all shards that are up."""
        return sum(self.sizes[shard] for shard in self.healthy)

    def holds(self, steps: int) -> bool:
        """Whether this many environment steps are stored, or as many as fit into the shards that are up."""
        return self.stored >= max(min(steps, self.capacity * len(self.healthy)), 1)

    def await_healthy(self) -> Sequence[int]:
        """As `healthy`, where one is."""
        return self.healthy

    @property
    @abstractmethod
    def num_requested(self) -> int:
        """Batches that were requested and not taken yet."""

    @abstractmethod
    def has_room(self, shard: int) -> bool:
        """Whether another batch may be requested from a shard."""

    @abstractmethod
    def take(self, timeout_s: float = 0.0) -> Drawn | None:
        """The oldest batch that has been drawn; None if none is within this time."""

    @abstractmethod
    def stop(self) -> None:
        """End processes."""

    @abstractmethod
    def _send(self, shard: int, method: str, *args: Any) -> None:
        """Have a shard carry out a method, after those before."""

    @abstractmethod
    def _request(self, shard: int) -> None:
        """Have a shard draw a batch."""

    @abstractmethod
    def _states(self) -> list[State | None]:
        """The state of each shard; None for one that is lost."""

    @abstractmethod
    def _set_states(self, states: Sequence[State | None]) -> None:
        """Restore all shards; what was requested before is dropped."""

    def add(self, sample: Sample) -> None:
        """Store the fragments of a worker in the shard whose turn it is."""
        healthy = self.await_healthy()
        shard = healthy[self._turn % len(healthy)]
        self._turn += 1
        self.sizes[shard] = min(self.sizes[shard] + sample.env_steps, self.capacity)
        self._send(shard, "add", cut_at_end(sample))

    def request(self) -> bool:
        """Request a batch from one of the shards, drawn in proportion to their sizes; False if all are busy or empty.

        So every transition is as likely, if priorities are equal, also after a shard was lost.
        """
        shards = [shard for shard in self.healthy if self.sizes[shard] and self.has_room(shard)]
        if not shards:
            return False
        sizes = np.array([self.sizes[shard] for shard in shards])
        self._request(int(self._rng.choice(shards, p=sizes / sizes.sum())))
        return True

    def reprioritize(self, drawn: Drawn, td_errors: dict[PolicyId, Array]) -> None:
        """Set the priorities of a batch from its TD errors [N] by policy, unless its shard was lost meanwhile."""
        indices = {name: batch.extras.get("indices") for name, batch in drawn.batches.items()}
        found = {name: (indices[name], errors) for name, errors in td_errors.items() if indices[name] is not None}
        if found and drawn.restarts == self.restarts[drawn.shard]:
            self._send(drawn.shard, "reprioritize", found, drawn.added)

    def state(self) -> State:
        """The shards with their sizes, and whose turn it is."""
        rng = self._rng.bit_generator.state
        return {"rng": rng, "turn": self._turn, "sizes": list(self.sizes), "shards": self._states()}

    def set_state(self, state: State) -> None:
        """Restore what `state` returned; with other numbers of shards, those too many are left out.

        Shards that were down when the state was written are empty.
        """
        count = len(self.sizes)
        if len(state["shards"]) > count:
            text = "num_replay_buffer_shards=%d: the checkpoint has %d shards, and only the first ones are restored"
            log.warning(text, count, len(state["shards"]))
        shards = state["shards"][:count] + [None] * max(count - len(state["shards"]), 0)
        lost = {index: size for index, size in enumerate(state["sizes"][:count], 1) if size and not shards[index - 1]}
        if lost:
            text = "replay shards that were down when the checkpoint was written begin empty: %s (%d steps are lost)"
            log.warning(text, ", ".join(map(str, lost)), sum(lost.values()))
        self._rng.bit_generator.state = state["rng"]
        self._turn = state["turn"]
        sizes = [*state["sizes"], *[0] * count]
        self.sizes = [min(size, self.capacity) if shard else 0 for size, shard in zip(sizes, shards, strict=False)]
        self._set_states(shards)


class LocalShards(ReplayShards):
    """Shards in this process."""

    def __init__(self, settings: ReplayBufferConfig, **arguments: Any) -> None:
        super().__init__(settings, **arguments)
        self.shards = [ReplayShard(**self._arguments, index=index) for index in range(len(self.sizes))]

    @property
    def healthy(self) -> Sequence[int]:
        """All."""
        return range(len(self.shards))

    @property
    def num_requested(self) -> int:
        """0 or 1."""
        return len(self._arrived)

    def has_room(self, shard: int) -> bool:
        """Whether none is drawn: nothing goes on at the same time, and later priorities are newer."""
        return not self._arrived

    def take(self, timeout_s: float = 0.0) -> Drawn | None:
        """The batch that was requested, at once."""
        return self._arrived.popleft() if self._arrived else None

    def stop(self) -> None:
        """Do nothing."""

    def _send(self, shard: int, method: str, *args: Any) -> None:
        getattr(self.shards[shard], method)(*args)

    def _request(self, shard: int) -> None:
        self._arrived.append(Drawn(shard, 0, *self.shards[shard].draw(self.batch_size)))

    def _states(self) -> list[State | None]:
        return [shard.state() for shard in self.shards]

    def _set_states(self, states: Sequence[State | None]) -> None:
        self._arrived.clear()
        for shard, state in zip(self.shards, states, strict=True):
            shard.set_state(state)


def cut_at_end(sample: Sample) -> Sample:
    """The fragments of a sample alone, cut off at their end as if nothing followed."""
    rollouts = {}
    for policy_id, rollout in sample.rollouts.items():
        truncated = rollout.truncated.copy()
        truncated[-1:] = True  # there may be none
        rollouts[policy_id] = replace(rollout, truncated=truncated)
    return replace(sample, rollouts=rollouts, episodes=[])
