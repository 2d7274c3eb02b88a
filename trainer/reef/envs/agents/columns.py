"""The agents of one policy in all environments of a worker, as columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from reef.config import AlgorithmConfig
from reef.envs.by_policy import Columns
from reef.envs.vector import StepResult
from reef.envs.wrappers import env_actions
from reef.spaces import Layout, Space
from reef.types import AgentId, Array


class AgentGroup:
    """The agents of one policy in all environments, and the arrays of their columns."""

    def __init__(
        self, config: AlgorithmConfig, agents: list[AgentId], num_envs: int, spaces: tuple[Space, Space]
    ) -> None:
        self.agents = agents
        count = num_envs * len(agents)
        self.observation_layout, self.action_layout = Layout.of(spaces[0]), Layout.of(spaces[1])
        self.present = np.zeros(count, np.bool_)
        columns = Columns.of(config, *spaces, np.repeat(np.arange(num_envs), len(agents)))
        self.columns = columns._replace(present=self.present, agents=agents)
        self.obs = np.zeros((count, *self.observation_layout.shape), self.observation_layout.dtype)
        self.rewards = np.zeros(count, np.float32)
        self.terminated = np.zeros(count, np.bool_)
        self.truncated = np.zeros(count, np.bool_)
        self.final_obs: dict[int, Array] = {}
        self.taken: list[Any] = []  # by column
        self.live = np.zeros(count, np.bool_)  # whether the step counts: the agent was there

    def of(self, env: int) -> slice:
        """The columns of an environment, in the order of `agents`."""
        return slice(env * len(self.agents), (env + 1) * len(self.agents))

    def write(self, column: int, agent: AgentId, obs: Any) -> None:
        """Take an agent's observation; ValueError for one of another shape."""
        try:
            self.obs[column] = self.observation_layout.checked(obs)
        except ValueError as error:
            raise ValueError(f"agent {agent!r}: {error}") from error

    def take(self, actions: Array) -> None:
        """Hold the actions [B, *action] for the agents as environments take them, and forget the last step."""
        self.taken = env_actions(actions, self.action_layout, self.columns.action_transform)
        self.terminated[:] = self.truncated[:] = False
        self.rewards[:] = 0.0
        self.final_obs = {}
        self.live = self.present.copy()

    def clear(self, env: int) -> None:
        """Forget the agents of an environment, whose next episode begins."""
        self.present[self.of(env)] = False

    def result(self) -> StepResult:
        """What the step was."""
        rewards = self.columns.reward_transform(self.rewards)
        return StepResult(self.obs, rewards, self.terminated, self.truncated, self.final_obs, self.live, self.rewards)


class TurnGroup(AgentGroup):
    """The columns of agents that do not act in each step: a step of theirs lasts until they act again, or end.

    What they get meanwhile is the reward of that step.
    """

    def __init__(
        self, config: AlgorithmConfig, agents: list[AgentId], num_envs: int, spaces: tuple[Space, Space]
    ) -> None:
        super().__init__(config, agents, num_envs, spaces)
        self.columns = self.columns._replace(takes_turns=True)
        count = len(self.present)
        # [B] bool each: who acts in this step; who has acted, and waits for what comes of it
        self.acting, self.waiting = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        # [B] since the action; and in this step, of agents that have not acted yet too
        self.pending, self.raw_rewards = np.zeros(count, np.float32), np.zeros(count, np.float32)

    def take_in(self, actions: Array, part: slice = slice(None)) -> None:
        """As `take`, in a part of the columns: all present agents act."""
        self.taken = env_actions(actions, self.action_layout, self.columns.action_transform)
        self.acting[part] = self.present[part]
        self.waiting[part] |= self.present[part]
        for flags in (self.present, self.live, self.terminated, self.truncated):
            flags[part] = False
        self.rewards[part] = self.raw_rewards[part] = 0.0
        self.final_obs = {}

    def clear(self, env: int) -> None:
        """Forget the agents of an environment, whose next episode begins."""
        super().clear(env)
        self.waiting[self.of(env)] = False
        self.pending[self.of(env)] = 0.0

    def reward(self, column: int, reward: float) -> None:
        """Add a reward to the step that an agent waits to end; before its first one it counts for the episode alone."""
        self.raw_rewards[column] += reward
        if self.waiting[column]:
            self.pending[column] += reward

    def complete(self, column: int) -> None:
        """End the step that an agent waits to end, if it does."""
        if self.waiting[column]:
            self.live[column], self.rewards[column] = True, self.pending[column]
        self.waiting[column], self.pending[column] = False, 0.0

    def arrive(self, column: int) -> None:
        """Have an agent act next: it has an observation."""
        self.complete(column)
        self.present[column] = True

    def end(self, column: int, *, terminated: bool) -> None:
        """End an agent's episode with the observation that it has."""
        self.complete(column)
        self.terminated[column], self.truncated[column] = terminated, not terminated
        self.final_obs[column] = self.obs[column].copy()

    def drop(self, column: int) -> None:
        """Cut an agent's episode off without an observation: the step that it waits to end is not known."""
        self.waiting[column], self.truncated[column] = False, True

    def result(self) -> StepResult:
        """What the step was; `live`: a step of the agent's own has ended."""
        return super().result()._replace(raw_rewards=self.raw_rewards)
