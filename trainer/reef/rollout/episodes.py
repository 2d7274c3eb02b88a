"""What is known of running episodes, and what a worker collects of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
    recording_s: float = 0.0  # filtering and storing what they returned


class EpisodeTracker:
    """Sums rewards over the episodes of E environments, and returns each episode when it ends."""

    def __init__(
        self, num_envs: int, columns: Mapping[PolicyId, Array] | None = None, in_turns: Iterable[PolicyId] = ()
    ) -> None:
        """`columns`: by policy, the environment of each column, [B], in order; `in_turns`: whose agents take turns."""
        self.lengths = np.zeros(num_envs, np.int64)
        self.rewards: dict[PolicyId, Array] = {}
        # [B] bool, where agents take turns: whether the column had a step in the episode
        self.took_part: dict[PolicyId, Array] = {}
        self.set_columns(columns or {}, in_turns)

    def set_columns(self, columns: Mapping[PolicyId, Array], in_turns: Iterable[PolicyId]) -> None:
        """Change to other policies, given as they are to `__init__`; what is known of those that stay is kept."""
        num_envs = len(self.lengths)
        none = {name: np.zeros(len(envs), np.float64) for name, envs in columns.items()}
        self.rewards = {name: self.rewards.get(name, new) for name, new in none.items()}
        self.took_part = {name: self.took_part.get(name, none[name].astype(np.bool_)) for name in in_turns}
        # By environment: the columns of its agents.
        edges = {policy_id: np.searchsorted(envs, np.arange(num_envs + 1)) for policy_id, envs in columns.items()}
        self._agents = [
            {policy_id: slice(own[env], own[env + 1]) for policy_id, own in edges.items()} for env in range(num_envs)
        ]

    def add_rewards(
        self,
        policy_id: PolicyId,
        rewards: Array,  # [B] from the environments
        valid: Array | None,  # [B] bool: False where the step is not valid; None: all steps are valid
        live: Array | None = None,  # [B] bool: whether the column had a step of its own
    ) -> None:
        """Add the rewards of one step for the columns of one policy."""
        self.rewards[policy_id] += rewards if valid is None else rewards * valid
        if policy_id in self.took_part:
            self.took_part[policy_id] |= live

    def finish(self, env: int) -> Episode:
        """Return the episode that just ended in an environment: total reward, and rewards per policy and agent."""
        reward, means = 0.0, {}
        for policy_id, own in self._agents[env].items():
            rewards = self.rewards[policy_id][own]
            total = sum(rewards.tolist())
            agents = self.took_part[policy_id][own].sum() if policy_id in self.took_part else len(rewards)
            if agents:
                means[policy_id] = float(total / agents)
            reward += total
        episode = Episode(reward, int(self.lengths[env]), policy_rewards=means)
        self.forget(env)
        return episode

    def forget(self, env: int) -> None:
        """Drop the running episode of an environment."""
        for policy_id, own in self._agents[env].items():
            self.rewards[policy_id][own] = 0.0
            if policy_id in self.took_part:
                self.took_part[policy_id][own] = False
        self.lengths[env] = 0

    def forget_all(self) -> None:
        """Drop all running episodes."""
        for sums in (*self.rewards.values(), *self.took_part.values()):
            sums[:] = 0.0
        self.lengths[:] = 0

    def state(self) -> State:
        """The running sums."""
        rewards = {policy_id: rewards.copy() for policy_id, rewards in self.rewards.items()}
        found: State = {"rewards": rewards, "lengths": self.lengths.copy()}
        if self.took_part:
            found["took_part"] = {policy_id: took_part.copy() for policy_id, took_part in self.took_part.items()}
        return found

    def set_state(self, state: State) -> None:
        """Restore what `state` returned, for the columns that exist here."""
        pairs = [(self.rewards[policy_id], stored) for policy_id, stored in state["rewards"].items()]
        pairs += [(self.took_part[policy_id], stored) for policy_id, stored in state.get("took_part", {}).items()]
        for mine, stored in (*pairs, (self.lengths, state["lengths"])):
            count = min(len(mine), len(stored))
            mine[:count] = stored[:count]
