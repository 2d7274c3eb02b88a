"""Which seed every episode of every column starts from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reef.types import State

EVALUATION = 3  # keeps its episodes apart from those of training, as 1 and 2 do other generators of a run


def column_seeds(seed: int | None, worker_index: int, num_envs: int, *, in_evaluation: bool = False) -> list[int]:
    """Return one root seed per column from the run's seed and the worker's index; from entropy when `seed` is None."""
    kind = [EVALUATION] if in_evaluation else []
    source = np.random.SeedSequence(None if seed is None else [seed, worker_index, *kind])
    return [int(child.generate_state(1)[0]) for child in source.spawn(num_envs)]


class EpisodeSeeds:
    """A column's first episode uses the column's root seed, each later one a seed drawn from root and episode number.

    No generator runs on between episodes, so a column's episodes do not depend on what its siblings do.
    """

    def __init__(self, roots: Sequence[int]) -> None:
        self.roots = [int(root) for root in roots]
        self.episodes = [0] * len(self.roots)  # started so far

    def current(self, column: int, ahead: int = 0) -> int:
        """The seed of the episode in progress, or of the one that is so many `ahead`."""
        root, number = self.roots[column], self.episodes[column] - 1 + ahead
        return root if number <= 0 else int(np.random.SeedSequence([root, number]).generate_state(1)[0])

    def episode_id(self, column: int, ahead: int = 0) -> int:
        """A number, counted as in `current`, that no other episode of the run has; those of a column are in order."""
        return (self.roots[column] >> 1 << 32) + self.episodes[column] + ahead

    def next(self, column: int) -> int:
        """Begin the next episode of a column and return its seed."""
        self.episodes[column] += 1
        return self.current(column)

    def state(self) -> State:
        """What `restore` needs to go on."""
        return {"roots": list(self.roots), "episodes": list(self.episodes)}

    def restore(self, state: State) -> None:
        """Go on where the columns of `state` were, as far as there are columns."""
        count = min(len(self.roots), len(state["roots"]))
        self.roots[:count] = map(int, state["roots"][:count])
        self.episodes[:count] = map(int, state["episodes"][:count])
