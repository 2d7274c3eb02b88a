"""Replay shards in processes of their own, on the node of the learner's process."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from reef.config import AlgorithmConfig
from reef.distributed.actor_group import ActorGroup
from reef.distributed.failure_policy import FaultTolerance
from reef.distributed.slot import ActorSpec
from reef.distributed.start import start
from reef.replay.settings import ReplayBufferConfig
from reef.replay.shards import Drawn, ReplayShard, ReplayShards
from reef.run.process.deadline import Deadline
from reef.types import State

log = logging.getLogger(__name__)


class RayShards(ReplayShards):
    """Shards as actors, which reserve no CPU. One that is lost comes back empty, as the settings of failures say.

    The index of an actor is that of its shard plus 1.
    """

    def __init__(
        self, settings: ReplayBufferConfig, *, config: AlgorithmConfig, deadline: Deadline, most: int, **arguments: Any
    ) -> None:
        """`most`: batches requested from one shard at a time. Raises WorkerError when shards cannot be made."""
        super().__init__(settings, **arguments)
        start()
        self._most, self._limit_s = most, config.worker_restore_timeout_s
        self._begun: set[int] = set()
        limits = {"request_timeout_s": config.sample_timeout_s, "max_requests_in_flight": most}
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
        spec = ActorSpec(
            name="replay shard",
            target=ReplayShard,
            arguments=lambda index, _: {**self._arguments, "index": index - 1},
            options=lambda _: {"num_cpus": 0, "scheduling_strategy": here},
            work={"draw": "sample_timeout_s"},
        )
        tolerance = FaultTolerance.of(config, **limits)
        self._group = ActorGroup(spec, len(self.sizes), tolerance, on_entered=self._begin_empty, deadline=deadline)

    def _begin_empty(self, group: ActorGroup, indices: list[int]) -> None:
        for shard in (index - 1 for index in indices):
            if shard in self._begun:
                log.warning("replay shard %d begins again, empty: %d steps are lost", shard + 1, self.sizes[shard])
                self.restarts[shard] += 1
            self._begun.add(shard)
            self.sizes[shard] = 0

    @property
    def healthy(self) -> Sequence[int]:
        """Those that are up."""
        return [index - 1 for index in self._group.healthy]

    @property
    def num_requested(self) -> int:
        """Those that are drawn now, and those that have arrived."""
        return sum(map(self._num_requested, range(len(self.sizes))))

    def _num_requested(self, shard: int) -> int:
        return self._group.num_in_flight(shard + 1) + sum(drawn.shard == shard for drawn in self._arrived)

    def has_room(self, shard: int) -> bool:
        """Whether it draws fewer than the most."""
        return self._num_requested(shard) < self._most

    def await_healthy(self) -> Sequence[int]:
        """As `healthy`; waits for a replacement if all are lost, WorkerError if none comes."""
        return [index - 1 for index in self._group.await_healthy()]

    def take(self, timeout_s: float = 0.0) -> Drawn | None:
        """The oldest batch that has arrived; waits for a replacement if all shards are lost."""
        if not self._arrived:
            for index, (batches, added) in self._group.ready(timeout_s):
                self._arrived.append(Drawn(index - 1, self.restarts[index - 1], batches, added))
        return self._arrived.popleft() if self._arrived else None

    def stop(self) -> None:
        """End the actors."""
        self._group.stop()

    def _send(self, shard: int, method: str, *args: Any) -> None:
        self._group.send(method, *args, to=[shard + 1])

    def _request(self, shard: int) -> None:
        self._group.request(shard + 1, "draw", self.batch_size)

    def _states(self) -> list[State | None]:
        states = self._group.states()
        return [states.get(shard + 1) for shard in range(len(self.sizes))]

    def _set_states(self, states: Sequence[State | None]) -> None:
        self._group.drop_requests()  # batches belong to what is left behind
        self._arrived.clear()
        arguments = {index: (states[index - 1],) for index in self._group.healthy}
        self._group.call_some("set_state", arguments, timeout_s=self._limit_s)
