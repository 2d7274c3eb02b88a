"""Episodes that applications play, as they are recorded step by step."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from reef.batch import Episode
from reef.errors import ExternalEpisodeError
from reef.types import DEFAULT_POLICY, Array, RecurrentState

LARGEST = float(np.finfo(np.float32).max)  # sum of the rewards of a step: learners read float32
LONGEST = 100_000  # steps of an episode where whole ones are asked for


class Acted(NamedTuple):
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
    """T consecutive steps of one episode."""

    obs: Array  # [T + 1, *obs] as the network takes them; the last one follows the last step
    actions: Array  # [T, *action] as the policy chose them
    rewards: Array  # [T] float32 as the application gave them
    dist_inputs: Array | None  # [T, D] of the action distribution; None: the policy records none
    terminated: bool  # the episode ended with the last step
    truncated: bool  # it was cut off there
    version: int  # of the weights that acted
    state_in: RecurrentState  # [1, ...] each, the policy's memory before the first step; empty without one
    episode: Episode | None = None  # where it is over

    def __len__(self) -> int:
        return len(self.rewards)


@dataclass(slots=True)
class ExternalEpisode:
    """One episode that an application plays; `learns`: whether its steps are kept."""

    episode_id: str
    learns: bool = True
    obs: list[Array] = field(default_factory=list)
    actions: list[Array] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    dist_inputs: list[Array] = field(default_factory=list)
    version: int = 0
    state_in: RecurrentState = field(default_factory=dict)
    newest: Acted | None = None  # of the last action, None before the first one
    newest_reward: float = 0.0  # that it was credited
    reward: float = 0.0  # of the whole episode
    length: int = 0
    used_at: float = field(default_factory=time.monotonic)

    @property
    def held(self) -> int:
        """How many steps of it are kept here."""
        return len(self.rewards)

    def check_reward(self, reward: float) -> None:
        """Raise ExternalEpisodeError as `check_reward`, for a reward that is added to those of the last action."""
        check_reward(self.episode_id, reward, self.newest_reward, has_acted=self.newest is not None)

    def credit(self, reward: float) -> None:
        """Add a reward, which was checked, to that of the last action."""
        self.reward += reward
        self.newest_reward += reward
        if self.rewards:
            self.rewards[-1] += reward

    def cut(self, obs: Array, steps: int) -> RecordedSteps | None:
        """The steps so far, if there are at least `steps` of them; `obs` [*obs] follows the last one."""
        return self._take(obs) if self.learns and len(self.rewards) >= steps else None

    def act(self, obs: Array, acted: Acted) -> None:
        """Record a step."""
        self.length += 1
        self.newest, self.newest_reward = acted, 0.0
        if not self.learns:
            return
        if not self.rewards:
            self.version, self.state_in = acted.version, acted.memory_before
        self.obs.append(obs)
        self.actions.append(acted.action)
        self.rewards.append(0.0)
        if acted.dist_inputs is not None:
            self.dist_inputs.append(acted.dist_inputs)

    def end(self, obs: Array, *, truncated: bool) -> RecordedSteps | None:
        """The last steps of the episode; None where there are none to learn from."""
        if not self.rewards:
            return None
        done = Episode(self.reward, self.length, policy_rewards={DEFAULT_POLICY: self.reward})
        return self._take(obs, terminated=not truncated, truncated=truncated, episode=done)

    def _take(
        self, obs: Array, *, terminated: bool = False, truncated: bool = False, episode: Episode | None = None
    ) -> RecordedSteps:
        found = RecordedSteps(
            obs=np.stack([*self.obs, obs]),
            actions=np.stack(self.actions),
            rewards=np.array(self.rewards, np.float32),
            dist_inputs=np.stack(self.dist_inputs) if self.dist_inputs else None,
            terminated=terminated,
            truncated=truncated,
            version=self.version,
            state_in=self.state_in,
            episode=episode,
        )
        for steps in (self.obs, self.actions, self.rewards, self.dist_inputs):
            steps.clear()
        return found


def check_reward(episode_id: str, reward: float, credited: float, *, has_acted: bool) -> None:
    """Raise ExternalEpisodeError for a reward that no action came before, or whose sum is no finite float32.

    `credited`: what the last action was credited before.
    """
    if not abs(reward) <= LARGEST or not abs(credited + reward) <= LARGEST:  # also for NaN
        raise ExternalEpisodeError(
            f"episode {episode_id!r}: the reward is {reward}, and {credited + reward} with those before, expected a "
            "finite number of float32."
        )
    if reward and not has_acted:
        raise ExternalEpisodeError(
            f"episode {episode_id!r}: a reward of {reward:g} before the first action. A reward is credited to "
            "the action before it: call get_action or log_action first."
        )
