"""Recorded steps that need not fit into memory: read again and again, and drawn from the newest of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from reef.batch import TRANSITION_COLUMNS, Rollout, Transitions
from reef.offline.recorded import RecordedSource, transitions_of
from reef.replay.buffer import ReplayBuffer
from reef.types import State


class Window:
    """The newest `size` steps of one source; as many new ones are read as are drawn, once it is full."""

    def __init__(self, source: RecordedSource, *, size: int, gamma: float, n_step: int | None) -> None:
        self._source, self._size, self._gamma, self._n_step = source, size, gamma, n_step
        self.buffer = ReplayBuffer(size)
        self._drawn = 0
        self._taken = 0  # steps since the source was opened
        self._reading: Iterator[Rollout] = iter(())
        self._ahead: Transitions | None = None  # what was read last,
        self._next_row = 0  # and its first row that is not yet in the buffer

    def sample(self, count: int, rng: np.random.Generator) -> Transitions:
        """[count] steps, drawn with replacement."""
        self._drawn += count
        while (missing := self._size + self._drawn - self.buffer.added) > 0:
            self.buffer.add(self._take(missing))
        return self.buffer.sample(count, rng)

    def _take(self, most: int) -> Transitions:
        """The next steps, no more than `most` of them."""
        if self._ahead is None:
            self._ahead, self._next_row = transitions_of(self._next(), self._gamma, self._n_step), 0
        taken = self._ahead[self._next_row : self._next_row + most]
        self._next_row += len(taken)
        if self._next_row == len(self._ahead):
            self._ahead = None
        self._taken += 0 if self._source.keeps_place else len(taken)
        return taken

    def _next(self) -> Rollout:
        if (episodes := next(self._reading, None)) is None:
            self._reading, self._taken = self._source.read(), 0
            episodes = next(self._reading)  # `read` raises where there is none
        return episodes

    def state(self) -> State:
        """The steps, and how far was read."""
        return {"drawn": self._drawn, "taken": self._taken, "buffer": self.buffer.state()}

    def set_state(self, state: State) -> None:
        """Restore what `state` returned; this pass is read once more up to there, to go on behind it."""
        self._reading, self._ahead, self._taken = iter(()), None, 0
        before = -1
        while before < self._taken < state["taken"]:  # it begins again where files are shorter than they were
            before = self._taken
            self._take(state["taken"] - before)
        self._drawn = state["drawn"]
        self.buffer.set_state(state["buffer"])


class ShuffleWindow:
    """A `Window` for each source, with its share of all steps that are held."""

    def __init__(
        self, sources: Sequence[RecordedSource], *, size: int, gamma: float, n_step: int | None, seed: int | None
    ) -> None:
        weights = np.array([source.weight for source in sources])
        self._shares = weights / weights.sum()  # [S]
        self.windows = [
            Window(source, size=max(round(size * share), 1), gamma=gamma, n_step=n_step)
            for source, share in zip(sources, self._shares, strict=True)
        ]
        # 3: as `RecordedSteps`
        self.rng = np.random.default_rng(None if seed is None else [seed, 0, 3])

    def sample(self, count: int) -> Transitions:
        """[count] steps: the source of each by its weight, then one of the steps that are held of it."""
        counts = self.rng.multinomial(count, self._shares)
        parts = [w.sample(int(n), self.rng) for w, n in zip(self.windows, counts, strict=True) if n]
        if len(parts) == 1:
            return parts[0]
        return Transitions(
            **{name: np.concatenate([getattr(part, name) for part in parts]) for name in TRANSITION_COLUMNS},
            extras={name: np.concatenate([part.extras[name] for part in parts]) for name in parts[0].extras},
        )

    def state(self) -> State:
        """Of the windows, and the random generator."""
        return {"rng": self.rng.bit_generator.state, "windows": [window.state() for window in self.windows]}

    def set_state(self, state: State) -> None:
        """Restore what `state` returned."""
        self.rng.bit_generator.state = state["rng"]
        for window, stored in zip(self.windows, state["windows"], strict=True):
            window.set_state(stored)
