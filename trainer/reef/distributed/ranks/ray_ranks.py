"""The `Learners` that are the rollout workers themselves: the driver coordinates, and holds no weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

from reef.batch import KeptRollouts, Sample
from reef.config import AlgorithmConfig
from reef.distributed.ranks.rank import Held, Rank
from reef.distributed.ray_workers import RayWorkers
from reef.errors import TrainingError, WorkerError
from reef.learn.learner import Update
from reef.learn.learners import LocalLearners
from reef.types import PolicyId, State, Weights

T = TypeVar("T")
ALL_LOST = "every rank was lost, and with them the newest weights. Restore the newest checkpoint to go on."


class RayRanks(LocalLearners):
    """Rollout workers of which each samples its share of a batch, and all make the update together.

    They average their gradients in each step, so that all hold the same weights. When ranks are lost, and the settings
    cover it, the others meet again and go on from the state of one of them; replacements join before the next batch.
    """

    def __init__(self, config: AlgorithmConfig, workers: RayWorkers) -> None:
        """`workers`: those whose actors are `Rank`s."""
        super().__init__({}, lambda: 1)
        self._config, self._workers = config, workers
        # Process ids by the indices of the workers: of the ranks that have met, and of those that have sampled.
        self._met: dict[int, int] = {}
        self._sampled: dict[int, int] = {}
        self._next: Held | None = None  # what all ranks take when they meet next

    def sample(self) -> list[Sample]:
        """Let each rank sample its share of a train batch; the rollouts stay there."""
        found: dict[int, list[Sample]] = {}
        while not found:
            ranks, config = self._meet(), self._config
            calls = {}
            for place, index in enumerate(ranks, 1):
                steps = config.fragment_length(place, len(ranks))
                auto = config.rollout_fragment_length == "auto"
                share = steps * config.num_envs_per_worker if auto else math.ceil(config.enough_steps / len(ranks))
                calls[index] = partial(Rank.sample_share, steps=steps, share=share)
            found = self._workers.call_some(calls)
        self._sampled = {index: self._met[index] for index in found}
        return [sample for samples in found.values() for sample in samples]

    def update(self, batches: dict[PolicyId, KeptRollouts], timestep: int) -> dict[PolicyId, Update]:  # type: ignore[override]
        """Improve the policies on what the ranks have sampled; nothing is returned if all that had any are lost."""
        while ranks := self._meet(self._sampled):
            shared = [name for name, kept in batches.items() if all(kept.steps[index] for index in ranks)]
            improve = partial(Rank.improve, policies=shared or list(batches), timestep=timestep)
            found = self._workers.call_some(dict.fromkeys(ranks, improve))
            for answer in found.values():
                if isinstance(answer, TrainingError):
                    raise answer
            done = {index: answer for index, answer in found.items() if isinstance(answer, dict)}
            if len(done) < len(ranks):
                self._next, self._met = self._ask(done or found, Rank.held), {}
            if done:
                return next(iter(done.values()))
        return {}

    def _meet(self, among: dict[int, int] | None = None) -> list[int]:
        """Let the healthy workers, or those `among` them, meet unless they have; returns their indices."""
        while True:
            healthy = self._workers.processes()
            wanted = {i: process for i, process in healthy.items() if among is None or among.get(i) == process}
            if wanted == self._met or not wanted:
                return list(wanted)
            if self._met and self._next is None:
                survivors = [index for index, process in self._met.items() if healthy.get(index) == process]
                self._next = self._ask(survivors, Rank.held)
            self._met = {}
            first = next(iter(wanted))
            places = {index: place for place, index in enumerate(wanted)}
            opened = self._workers.call_some(
                {index: partial(Rank.open, rank=place, world_size=len(wanted)) for index, place in places.items()}
            )
            if len(opened) < len(wanted):
                continue
            self._next = self._next or self._ask([first], Rank.held)
            meet = partial(Rank.meet, address=opened[first], held=self._next)
            if sum(self._workers.call_some(dict.fromkeys(wanted, meet)).values()) == len(wanted):
                self._met, self._next = wanted, None

    def _ask(self, indices: Iterable[int], question: Callable[[Rank], T]) -> T:
        """What the first of these ranks that is there answers; WorkerError if none is."""
        for index in indices:
            for answer in self._workers.call_some({index: question}).values():
                return answer
        raise WorkerError(" ".join(filter(None, [ALL_LOST, self._workers.problem])))

    def weights(self) -> Weights:
        """The parameters of every policy, from one rank."""
        return self._ask(self._meet(), Rank.learned_weights)

    def set_weights(self, weights: Weights) -> None:
        """Overwrite the parameters of all ranks."""
        self._workers.call_some(dict.fromkeys(self._meet(), partial(Rank.set_learned_weights, weights=weights)))

    def state(self) -> State:
        """The state of the learners of one rank: all are the same."""
        return self._ask(self._meet(), Rank.held)[0]

    def set_state(self, state: State) -> None:
        """Restore what `state` returned, in all ranks, as soon as they meet."""
        self._next, self._met = (state, 0, 0), {}
        self._updates.clear()
