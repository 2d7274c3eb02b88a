"""What is known of running episodes, and what a worker collects of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from reef.batch import Episode
from reef.types import Array, PolicyId, State


@dataclass
class Collection:
    """The data of one `sample` call."""

    deadline: float  # by time.perf_counter()
    env_steps: int = 0
    episodes: list[Episode] = field(default_factory=list)
    inference_s: float = 0.0  # acting
    env_wait_s: float = 0.0  # in the environments


class EpisodeTracker:
    """Sums rewards over the episodes of E environments, and returns each episode when it ends."""

    def __init__(self, num_envs: int, columns: Mapping[PolicyId, Array]) -> None:
        """`columns`: by policy, the environment of each column, [B], in order."""
        self.rewards = {policy_id: np.zeros(len(envs), np.float64) for policy_id, envs in columns.items()}
        self.lengths = np.zeros(num_envs, np.int64)
        # By environment: the columns of its agents.
        edges = {policy_id: np.searchsorted(envs, np.arange(num_envs + 1)) for policy_id, envs in columns.items()}
        self._agents = [
            {policy_id: slice(own[env], own[env + 1]) for policy_id, own in edges.items()} for env in range(num_envs)
        ]

    def add_rewards(
        self,
        policy_id: PolicyId,
        rewards: Array,  # [B] from the environments
        live: Array | None,  # [B] bool: False where the step is not valid; None: all steps are valid
    ) -> None:
        """Add the rewards of one step for the columns of one policy."""
        self.rewards[policy_id] += rewards if live is None else rewards * live

    def finish(self, env: int) -> Episode:
        """Return the episode that just ended in an environment: total reward, and rewards per policy and agent."""
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
        """Drop the running episode of an environment."""
        for policy_id, own in self._agents[env].items():
            self.rewards[policy_id][own] = 0.0
        self.lengths[env] = 0

    def forget_all(self) -> None:
        """Drop all running episodes."""
        for rewards in self.rewards.values():
            rewards[:] = 0.0
        self.lengths[:] = 0

    def state(self) -> State:
        """The running sums."""
        rewards = {policy_id: rewards.copy() for policy_id, rewards in self.rewards.items()}
        return {"rewards": rewards, "lengths": self.lengths.copy()}

    def set_state(self, state: State) -> None:
        """Restore what `state` returned, for the columns that exist here."""
        pairs = [(self.rewards[policy_id], stored) for policy_id, stored in state["rewards"].items()]
        for mine, stored in (*pairs, (self.lengths, state["lengths"])):
            count = min(len(mine), len(stored))
            mine[:count] = stored[:count]
