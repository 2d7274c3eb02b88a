"""The steps of recorded episodes, from which learners draw."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reef.batch import Rollout, Transitions
from reef.replay.buffer import ReplayBuffer
from reef.replay.n_step import NStep, to_the_end
from reef.types import State


class RecordedSteps:
    """All steps of recorded episodes as n-step transitions, drawn one by one, whatever episode they are from.

    Steps of one episode are alike, so that a batch of whole episodes would be a poor sample of the data.
    """

    def __init__(self, episodes: Sequence[Rollout], *, gamma: float, n_step: int | None, seed: int | None) -> None:
        """`n_step`: rewards that are summed; None: all up to the episode's end. The episodes are [T, 1] each."""
        self.buffer = ReplayBuffer(sum(len(episode) for episode in episodes))
        for episode in episodes:
            self.buffer.add(to_the_end(episode, gamma) if n_step is None else NStep(n_step, gamma).add(episode))
        # 3: a random stream other than those of workers and replay
        self.rng = np.random.default_rng(None if seed is None else [seed, 0, 3])

    def __len__(self) -> int:
        return len(self.buffer)

    def sample(self, count: int) -> Transitions:
        """[count] steps, drawn with replacement."""
        return self.buffer.sample(count, self.rng)

    def state(self) -> State:
        """The random generator; the steps are read again from their files."""
        return {"rng": self.rng.bit_generator.state}

    def set_state(self, state: State) -> None:
        """Restore what `state` returned."""
        self.rng.bit_generator.state = state["rng"]
