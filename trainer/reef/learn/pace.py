"""How far sampling, learning and the workers' weights may be apart when none of them waits for the others."""

from __future__ import annotations

from collections.abc import Collection

from reef.batch import Sample
from reef.types import State, Stats


class Pace:
    """Holds learning and sampling to a ratio, and counts how long each worker has acted with its weights."""

    def __init__(
        self,
        *,
        intensity: float,  # replayed steps per sampled step
        starts: int,  # sampled steps before learning starts
        batch_size: int,
        round_steps: int,  # environment steps in one fragment of every worker that samples in a process of its own
        sync_delay: int,  # environment steps of a worker
    ) -> None:
        self.intensity, self.starts, self.batch_size = intensity, starts, batch_size
        # Updates that may be due before sampling waits: those of a round of fragments, and two that are under way.
        # In one process nothing goes on meanwhile, so all are made first.
        self.due_before_sampling_waits = 2 + intensity * round_steps / batch_size if round_steps else 0.0
        self.sync_delay = sync_delay
        # By index of the worker: steps since it got weights, and their version in its newest fragment.
        self._workers: dict[int, tuple[int, int]] = {}

    def updates_due(self, sampled: int, trained: int) -> int:
        """Updates that the ratio calls for, with this many environment steps sampled and trained on."""
        return max(int((self.intensity * (sampled - self.starts) - trained) // self.batch_size), 0)

    def samples_per_insert(self, sampled: int, trained: int) -> float:
        """How often each step has been replayed, of those since learning started."""
        return trained / max(sampled - self.starts, 1)

    def add(self, sample: Sample) -> None:
        """Count the steps of a worker."""
        steps, _ = self._workers.get(sample.worker_index, (0, 0))
        version = max(rollout.policy_version for rollout in sample.rollouts.values())
        self._workers[sample.worker_index] = steps + sample.env_steps, version

    def take_outdated(self, healthy: Collection[int]) -> list[int]:
        """The workers to which new weights are due; they count as sent."""
        found = [index for index in healthy if self._workers.get(index, (0, 0))[0] >= self.sync_delay]
        for index in found:
            self._workers[index] = 0, self._workers[index][1]
        return found

    def staleness(self, version: int, healthy: Collection[int]) -> Stats:
        """By how many versions the weights of each worker's newest fragment are behind: their mean, and the largest."""
        behind = [version - acted for index, (_, acted) in self._workers.items() if index in healthy] or [0]
        return {"staleness": sum(behind) / len(behind), "staleness_max": float(max(behind))}

    def state(self) -> State:
        """The counts of all workers."""
        return {str(index): list(counts) for index, counts in self._workers.items()}

    def set_state(self, state: State) -> None:
        """Restore what `state` returned."""
        self._workers = {int(index): (steps, version) for index, (steps, version) in state.items()}
