"""The steps of one agent in an episode that an application plays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from reef.errors import ExternalEpisodeError
from reef.types import Array, PolicyId, RecurrentState

LARGEST = float(np.finfo(np.float32).max)  # sum of the rewards of a step: learners read float32


class ChosenAction(NamedTuple):
    """What a policy made of an observation."""

    # [*action] as the policy chose it
    action: Array
    # [D] of the action distribution; None: the policy records none
    dist_inputs: Array | None
    # of the weights
    version: int
    # [1, ...] each, before and after the observation; empty for a policy without a memory
    memory_before: RecurrentState
    memory: RecurrentState


@dataclass(frozen=True, slots=True)
class RecordedSteps:
    """T consecutive steps of one agent in one episode."""

    policy_id: PolicyId
    obs: Array  # [T + 1, *obs] as the network takes them; the last one follows the last step
    actions: Array  # [T, *action] as the policy chose them
    rewards: Array  # [T] float32 as the application gave them
    dist_inputs: Array | None  # [T, D] of the action distribution; None: the policy records none
    terminated: bool  # the agent ended with the last step
    truncated: bool  # it was cut off there
    version: int  # of the weights that acted
    state_in: RecurrentState  # [1, ...] each, the policy's memory before the first step; empty without one

    def __len__(self) -> int:
        return len(self.rewards)


@dataclass(slots=True)
class AgentSteps:
    """The steps of an agent that were not taken yet; `learns`: whether they are kept."""

    policy_id: PolicyId
    learns: bool = True
    obs: list[Array] = field(default_factory=list)
    actions: list[Array] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    dist_inputs: list[Array] = field(default_factory=list)
    version: int = 0
    state_in: RecurrentState = field(default_factory=dict)
    newest: ChosenAction | None = None  # of the last action, None before the first one

    def credit(self, reward: float) -> None:
        """Add a reward to that of the last action."""
        if self.rewards:
            self.rewards[-1] += reward

    def act(self, obs: Array, acted: ChosenAction) -> None:
        """Record a step."""
        self.newest = acted
        if not self.learns:
            return
        if not self.rewards:
            self.version, self.state_in = acted.version, acted.memory_before
        self.obs.append(obs)
        self.actions.append(acted.action)
        self.rewards.append(0.0)
        if acted.dist_inputs is not None:
            self.dist_inputs.append(acted.dist_inputs)

    def end(self, obs: Array | None, *, truncated: bool) -> RecordedSteps | None:
        """The last steps; None where there are none.

        Without a last observation nothing is known of what a step that is cut off led to: it is left out.
        """
        if obs is None and truncated and self.rewards:
            obs = self.obs.pop()
            for steps in (self.actions, self.rewards, self.dist_inputs):
                del steps[-1:]
        if not self.rewards:
            return None
        # What follows an end has no value.
        return self.take(self.obs[-1] if obs is None else obs, terminated=not truncated, truncated=truncated)

    def take(self, obs: Array, *, terminated: bool = False, truncated: bool = False) -> RecordedSteps:
        """The steps so far, which are kept no more; `obs` [*obs] follows the last one."""
        found = RecordedSteps(
            policy_id=self.policy_id,
            obs=np.stack([*self.obs, obs]),
            actions=np.stack(self.actions),
            rewards=np.array(self.rewards, np.float32),
            dist_inputs=np.stack(self.dist_inputs) if self.dist_inputs else None,
            terminated=terminated,
            truncated=truncated,
            version=self.version,
            state_in=self.state_in,
        )
        for steps in (self.obs, self.actions, self.rewards, self.dist_inputs):
            steps.clear()
        return found


def check_reward(where: str, reward: float, credited: float, *, has_acted: bool) -> None:
    """Raise ExternalEpisodeError for a reward that no action came before, or whose sum is no finite float32.

    `where`: the episode, and its agent; `credited`: what the last action was credited before.
    """
    if not abs(reward) <= LARGEST or not abs(credited + reward) <= LARGEST:  # also for NaN
        raise ExternalEpisodeError(
            f"{where}: the reward is {reward}, and {credited + reward} with those before, expected a "
            "finite number of float32."
        )
    if reward and not has_acted:
        raise ExternalEpisodeError(
            f"{where}: a reward of {reward:g} before the first action. A reward is credited to "
            "the action before it: call get_action or log_action first."
        )
