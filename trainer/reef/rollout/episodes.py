"""Reward and length of the episodes in progress."""

from __future__ import annotations

import numpy as np

from reef.batch import Episode
from reef.types import DEFAULT_POLICY, Array, State


class EpisodeTracker:
    """Adds up B columns and hands out each episode as it ends."""

    def __init__(self, columns: int) -> None:
        """One running episode per column."""
        self.rewards = np.zeros(columns, np.float64)
        self.lengths = np.zeros(columns, np.int64)

    def add(
        self,
        rewards: Array,  # [B] as the environment gave them
        live: Array,  # [B] bool: False where the step counts for nothing
    ) -> None:
        """Count one step."""
        self.rewards += rewards * live
        self.lengths += live

    def finish(self, column: int) -> Episode:
        """The episode that just ended in a column."""
        reward = float(self.rewards[column])
        episode = Episode(reward, int(self.lengths[column]), policy_rewards={DEFAULT_POLICY: reward})
        self.forget(column)
        return episode

    def forget(self, column: int | slice) -> None:
        """Drop what is running in a column."""
        self.rewards[column] = 0.0
        self.lengths[column] = 0

    def state(self) -> State:
        """The running sums."""
        return {"rewards": self.rewards.copy(), "lengths": self.lengths.copy()}

    def set_state(self, state: State) -> None:
        """The reverse of `state`, as far as the columns reach."""
        for mine, stored in ((self.rewards, state["rewards"]), (self.lengths, state["lengths"])):
            count = min(len(mine), len(stored))
            mine[:count] = stored[:count]
