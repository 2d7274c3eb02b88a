"""Reward and length of the episodes in progress."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from reef.batch import Episode
from reef.types import Array, PolicyId, State


class EpisodeTracker:
    """Adds up the episodes of E environments and hands out each as it ends."""

    def __init__(self, num_envs: int, columns: Mapping[PolicyId, Array]) -> None:
        """`columns`: by policy the environment of each column, [B], in order."""
        self.rewards = {policy_id: np.zeros(len(envs), np.float64) for policy_id, envs in columns.items()}
        self.lengths = np.zeros(num_envs, np.int64)
        # by environment: the columns of its agents
        edges = {policy_id: np.searchsorted(envs, np.arange(num_envs + 1)) for policy_id, envs in columns.items()}
        self._agents = [
            {policy_id: slice(own[env], own[env + 1]) for policy_id, own in edges.items()} for env in range(num_envs)
        ]

    def add_rewards(
        self,
        policy_id: PolicyId,
        rewards: Array,  # [B] as the environments gave them
        live: Array | None,  # [B] bool: False where the step counts for nothing; None: all count
    ) -> None:
        """Count what the columns of one policy got in a step."""
        self.rewards[policy_id] += rewards if live is None else rewards * live

    def finish(self, env: int) -> Episode:
        """The episode that just ended in an environment: what its agents got together, and per agent of each policy."""
        reward, means = 0.0, {}
        for policy_id, own in self._agents[env].items():
            rewards = self.rewards[policy_id][own]
            total = sum(rewards.tolist())
            means[policy_id] = total / len(rewards)
            reward += total
        episode = Episode(reward, int(self.lengths[env]), policy_rewards=means)
        self.forget(env)
        return episode

    def forget(self, env: int) -> None:
        """Drop what is running in an environment."""
        for policy_id, own in self._agents[env].items():
            self.rewards[policy_id][own] = 0.0
        self.lengths[env] = 0

    def forget_all(self) -> None:
        """Drop what is running everywhere."""
        for rewards in self.rewards.values():
            rewards[:] = 0.0
        self.lengths[:] = 0

    def state(self) -> State:
        """The running sums."""
        rewards = {policy_id: rewards.copy() for policy_id, rewards in self.rewards.items()}
        return {"rewards": rewards, "lengths": self.lengths.copy()}

    def set_state(self, state: State) -> None:
        """The reverse of `state`, as far as the columns reach."""
        pairs = [(self.rewards[policy_id], stored) for policy_id, stored in state["rewards"].items()]
        for mine, stored in (*pairs, (self.lengths, state["lengths"])):
            count = min(len(mine), len(stored))
            mine[:count] = stored[:count]
