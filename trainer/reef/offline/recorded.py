"""The steps of recorded episodes, from which learners draw."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from reef.batch import Rollout, Transitions
from reef.replay.buffer import ReplayBuffer
from reef.replay.n_step import NStep, to_the_end
from reef.types import State


class RecordedSource(NamedTuple):
    """Where episodes are read, [T, 1] of one or of several, and how often their steps are drawn, relative to others."""

    read: Callable[[], Iterator[Rollout]]  # each call begins with the first one, unless it keeps its place
    weight: float = 1.0
    keeps_place: bool = False  # reading goes on where it was, also after a run was resumed


def transitions_of(episode: Rollout, gamma: float, n_step: int | None) -> Transitions:
    """The steps of whole episodes, with the sum of `n_step` rewards from each; None: of all up to its end."""
    return to_the_end(episode, gamma) if n_step is None else NStep(n_step, gamma).add(episode)


class RecordedSteps:
    """All steps of recorded episodes as n-step transitions, drawn one by one, whatever episode they are from.

    Steps of one episode are alike, so that a batch of whole episodes would be a poor sample of the data.
    """

    def __init__(
        self, sources: Sequence[RecordedSource], *, gamma: float, n_step: int | None, seed: int | None
    ) -> None:
        """`n_step`: rewards that are summed; None: all up to the episode's end."""
        read = [list(source.read()) for source in sources]
        self.buffer = ReplayBuffer(sum(len(episode) for episodes in read for episode in episodes))
        starts = []
        for episodes in read:
            starts.append(self.buffer.added)
            for episode in episodes:
                self.buffer.add(transitions_of(episode, gamma, n_step))
        self._starts = np.array(starts)  # [S] the row with which each source begins
        self._lengths = np.diff([*starts, self.buffer.added])  # [S]
        weights = np.array([source.weight for source in sources])
        self._shares = weights / weights.sum()  # [S]
        # 3: a random stream other than those of workers and replay
        self.rng = np.random.default_rng(None if seed is None else [seed, 0, 3])

    def __len__(self) -> int:
        return len(self.buffer)

    def sample(self, count: int) -> Transitions:
        """[count] steps, drawn with replacement: the source of each by its weight, then a step of it."""
        if len(self._starts) == 1:
            return self.buffer.sample(count, self.rng)
        drawn = self.rng.choice(len(self._starts), size=count, p=self._shares)
        return self.buffer.take(self._starts[drawn] + self.rng.integers(self._lengths[drawn]))

    def state(self) -> State:
        """The random generator; the steps are read again from their files."""
        return {"rng": self.rng.bit_generator.state}

    def set_state(self, state: State) -> None:
        """Restore what `state` returned."""
        self.rng.bit_generator.state = state["rng"]
