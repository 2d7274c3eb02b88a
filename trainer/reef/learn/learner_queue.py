"""Train batches that wait for the learner while workers go on sampling, and those that it learns from again."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

import numpy as np

from reef.batch import Rollout, Sample, concat_columns
from reef.types import PolicyId, State, Stats


@dataclass(slots=True)
class TrainBatch:
    """Fragments of any workers, in the order of their arrival, from which one update learns."""

    fragments: dict[PolicyId, list[Rollout]] = field(default_factory=dict)
    env_steps: int = 0
    # steps towards a full batch, see `Sample.progress`
    progress: int = 0

    def add(self, sample: Sample) -> None:
        """Append a fragment."""
        for policy_id, rollout in sample.rollouts.items():
            self.fragments.setdefault(policy_id, []).append(rollout)
        self.env_steps += sample.env_steps
        self.progress += sample.progress

    def rollouts(self) -> dict[PolicyId, Rollout]:
        """The fragments side by side, by policy."""
        return {policy_id: concat_columns(parts) for policy_id, parts in self.fragments.items()}

    def staleness(self, version: int) -> dict[PolicyId, Stats]:
        """By how many versions of the weights the steps are older than `version`: their mean, and the largest."""
        found: dict[PolicyId, Stats] = {}
        for policy_id, parts in self.fragments.items():
            behind = [(version - part.policy_version, len(part)) for part in parts]
            steps = max(sum(length for _, length in behind), 1)
            mean = sum(age * length for age, length in behind) / steps
            found[policy_id] = {"staleness": mean, "staleness_max": float(max(age for age, _ in behind))}
        return found

    def is_older(self, version: int) -> bool:
        """Whether a fragment was sampled with weights before this version."""
        return any(part.policy_version < version for parts in self.fragments.values() for part in parts)


@dataclass(slots=True)
class Slot:
    """A batch that the learner has taken, and the number of updates that are still to learn from it."""

    batch: TrainBatch
    updates: int


class FragmentReplay:
    """Mixes old fragments into the train batches: `proportion` for each new one, at random from the `slots` before it.

    A `proportion` with a fraction is the mean of their number.
    """

    def __init__(self, proportion: float, slots: int, seed: int | None) -> None:
        """`seed`: of the random choice."""
        self.proportion, self._rng = proportion, np.random.default_rng(seed)
        self._samples: deque[Sample] = deque(maxlen=slots)

    def chosen_beside(self, sample: Sample) -> list[Sample]:
        """Return old fragments to learn from beside a new one, and store that."""
        count, rest = divmod(self.proportion, 1.0)
        count += self._rng.random() < rest
        found = self._rng.integers(len(self._samples), size=int(count)) if self._samples else ()
        chosen = [self._samples[index] for index in found]
        self._samples.append(Sample(sample.rollouts, [], sample.env_steps, sample.progress))
        return chosen

    def drop_older(self, version: int) -> None:
        """Forget fragments that were sampled with weights before this version."""
        kept = [one for one in self._samples if all(part.policy_version >= version for part in one.rollouts.values())]
        self._samples = deque(kept, self._samples.maxlen)

    def state(self) -> State:
        """The fragments and the random generator."""
        return {"rng": self._rng.bit_generator.state, "samples": stored_samples(self._samples)}

    def set_state(self, state: State) -> None:
        """Restore what `state` returned."""
        self._rng.bit_generator.state = state["rng"]
        self._samples = deque(samples_of(state["samples"]), self._samples.maxlen)


class LearnerQueue:
    """At most `size` whole batches, and one that is being filled; a full queue drops the oldest batch.

    The learner takes the batches of `slots` slots in turn. Each is learned from in `updates_per_batch` updates, then
    the oldest batch of the queue gets its slot. `unpublished` counts the updates since the workers last got the
    weights.
    """

    def __init__(
        self,
        size: int,
        batch_steps: int,
        *,
        slots: int = 1,
        updates_per_batch: int = 1,
        max_staleness: int | None = None,
        replay: FragmentReplay | None = None,
    ) -> None:
        """A batch is whole when it has `batch_steps` environment steps; `replay`: what adds old fragments."""
        self.size, self.batch_steps, self.updates_per_batch = size, batch_steps, updates_per_batch
        self.max_staleness, self.replay = max_staleness, replay
        self.unpublished = 0
        self._whole: deque[TrainBatch] = deque()
        self._filling = TrainBatch()
        # the one whose turn it is comes first
        self._slots: deque[Slot | None] = deque([None] * slots)
        self._batches_taken = 0

    def __len__(self) -> int:
        """Number of whole batches that wait."""
        return len(self._whole)

    def add(self, sample: Sample) -> int:
        """Add a fragment, and old ones beside it; returns the number of batches that were dropped for them."""
        old = [] if self.replay is None else self.replay.chosen_beside(sample)
        return sum(map(self._add, [sample, *old]))

    def _add(self, sample: Sample) -> bool:
        """Add a fragment; returns whether a batch was dropped for it."""
        self._filling.add(sample)
        if self._filling.progress < self.batch_steps:
            return False
        self._whole.append(self._filling)
        self._filling = TrainBatch()
        if len(self._whole) <= self.size:
            return False
        self._whole.popleft()
        return True

    def drop_stale(self, version: int) -> int:
        """Drop batches with a fragment that is more than `max_staleness` older than `version`; returns their number."""
        if self.max_staleness is None:
            return 0
        oldest = version - self.max_staleness
        if self.replay is not None:
            self.replay.drop_older(oldest)
        kept = [batch for batch in self._whole if not batch.is_older(oldest)]
        dropped = len(self._whole) - len(kept)
        self._whole = deque(kept)
        for index, slot in enumerate(self._slots):
            if slot is not None and slot.batch.is_older(oldest):
                self._slots[index] = None
                dropped += 1
        return dropped

    def pop(self) -> TrainBatch | None:
        """Return the batch to learn from next; None if the slot whose turn it is needs one and no whole batch waits."""
        slot = self._slots[0]
        if slot is None:
            if not self._whole:
                return None
            slot = Slot(self._whole.popleft(), self._updates_of_next())
            self._batches_taken += 1
        slot.updates -= 1
        self._slots[0] = slot if slot.updates else None
        self._slots.rotate(-1)
        return slot.batch

    def _updates_of_next(self) -> int:
        """Fewer than usual for the first batches, so that the slots do not all need another batch at the same time."""
        return math.ceil(self.updates_per_batch * min((self._batches_taken + 1) / len(self._slots), 1.0))

    def state(self) -> State:
        """All batches and old fragments, and the count of unpublished updates."""
        own = {
            "unpublished": self.unpublished,
            "batches": [asdict(batch) for batch in (*self._whole, self._filling)],
            "slots": [slot and asdict(slot) for slot in self._slots],
            "batches_taken": self._batches_taken,
        }
        return own if self.replay is None else own | {"replay": self.replay.state()}

    def set_state(self, state: State) -> None:
        """Restore what `state` returned, also with other settings: batches without a slot are lost."""
        batches = [_batch(stored) for stored in state["batches"]]
        self.unpublished = state["unpublished"]
        self._filling = batches.pop()
        self._whole = deque(batches)
        # older checkpoints have none of these
        slots = [slot and Slot(_batch(slot["batch"]), slot["updates"]) for slot in state.get("slots", ())]
        count = len(self._slots)
        self._slots = deque([*slots, *[None] * count][:count])
        self._batches_taken = state.get("batches_taken", 0)
        if self.replay is not None and "replay" in state:
            self.replay.set_state(state["replay"])


def stored_samples(samples: Iterable[Sample]) -> list[State]:
    """What is learned from samples, as a checkpoint can hold it; those without a step are left out."""
    return [
        {
            "rollouts": {policy_id: asdict(rollout) for policy_id, rollout in one.rollouts.items()},
            "env_steps": one.env_steps,
            "progress": one.progress,
        }
        for one in samples
        if one.progress
    ]


def samples_of(stored: Iterable[State]) -> list[Sample]:
    """The reverse of `stored_samples`."""
    return [
        Sample(
            {policy_id: Rollout(**rollout) for policy_id, rollout in one["rollouts"].items()},
            [],
            one["env_steps"],
            one["progress"],
        )
        for one in stored
    ]


def _batch(stored: State) -> TrainBatch:
    fragments = {
        policy_id: [Rollout(**rollout) for rollout in parts] for policy_id, parts in stored["fragments"].items()
    }
    return TrainBatch(fragments, stored["env_steps"], stored["progress"])
