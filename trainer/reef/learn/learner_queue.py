"""Train batches that wait for the learner while workers go on sampling."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass, field

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


class LearnerQueue:
    """At most `size` whole batches, and one that is being filled; a full queue drops the oldest batch.

    `unpublished` counts the updates since the workers last got the weights.
    """

    def __init__(self, size: int, batch_steps: int) -> None:
        """A batch is whole when it has `batch_steps` environment steps."""
        self.size, self.batch_steps = size, batch_steps
        self.unpublished = 0
        self._whole: deque[TrainBatch] = deque()
        self._filling = TrainBatch()

    def __len__(self) -> int:
        """Number of whole batches."""
        return len(self._whole)

    def add(self, sample: Sample) -> int:
        """Add a fragment; returns the number of batches that were dropped for it, 0 or 1."""
        self._filling.add(sample)
        if self._filling.progress < self.batch_steps:
            return 0
        self._whole.append(self._filling)
        self._filling = TrainBatch()
        if len(self._whole) <= self.size:
            return 0
        self._whole.popleft()
        return 1

    def pop(self) -> TrainBatch | None:
        """Take out the oldest whole batch, if there is one."""
        return self._whole.popleft() if self._whole else None

    def state(self) -> State:
        """All batches, and the count of unpublished updates."""
        return {"unpublished": self.unpublished, "batches": [asdict(batch) for batch in (*self._whole, self._filling)]}

    def set_state(self, state: State) -> None:
        """Restore what `state` returned."""
        batches = [_batch(stored) for stored in state["batches"]]
        self.unpublished = state["unpublished"]
        self._filling = batches.pop()
        self._whole = deque(batches)


def _batch(stored: State) -> TrainBatch:
    fragments = {
        policy_id: [Rollout(**rollout) for rollout in parts] for policy_id, parts in stored["fragments"].items()
    }
    return TrainBatch(fragments, stored["env_steps"], stored["progress"])
