"""Episodes that applications play, as they are recorded step by step."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from reef.batch import Episode
from reef.external.episodes.steps import AgentSteps, ChosenAction, RecordedSteps
from reef.types import AgentId, Array, PolicyId, RecurrentState

LONGEST = 100_000  # steps of an episode where whole ones are asked for


class AgentObservation(NamedTuple):
    """An agent's observation, for which an action is asked or reported; or its end."""

    agent: AgentId
    steps: AgentSteps
    # the sum since its last action
    reward: float
    # [*obs] as the network takes it; None: it ends without one
    obs: Array | None
    # [1, ...] each: what the policy remembers; empty without a memory
    memory: RecurrentState
    # [*action] that the application chose by itself, as a policy chooses it; None: the policy is to act
    own: Array | None
    # no action follows
    ends: bool


@dataclass(frozen=True, slots=True)
class Played:
    """What of one episode waits to be learned from."""

    fragments: list[RecordedSteps]
    env_steps: int  # since the last one
    episode: Episode | None = None  # where it is over

    def __len__(self) -> int:
        """Number of steps of all agents."""
        return sum(map(len, self.fragments))


@dataclass(slots=True)
class ExternalEpisode:
    """One episode that an application plays; `learns`: whether its steps are kept.

    Agents come with their first observation. A step of theirs lasts until they act again, or end.
    """

    episode_id: str
    learns: bool = True
    agents: dict[AgentId, AgentSteps] = field(default_factory=dict)  # that are there
    length: int = 0  # environment steps
    used_at: float = field(default_factory=time.monotonic)
    _reported: int = 0  # environment steps that `take` returned
    _finished: list[RecordedSteps] = field(default_factory=list)  # since then
    # of the whole episode: rewards, and the number of agents that acted
    _rewards: dict[PolicyId, float] = field(default_factory=lambda: defaultdict(float))
    _acted: Counter[PolicyId] = field(default_factory=Counter)

    @property
    def held(self) -> int:
        """How many steps of it are kept here."""
        return sum(len(steps.rewards) for steps in self.agents.values())

    def record(
        self, asked: Sequence[AgentObservation], acted: Sequence[ChosenAction | None], cut_after: int
    ) -> Played | None:
        """Record a step of the environment; `acted`: of those that do not end.

        Steps of an agent are finished after `cut_after` of them, or when it ends. Returns what is, None for nothing.
        """
        for each in asked:
            self._credit(each.steps, each.reward)
            if each.ends:
                self._leave(each.agent, each.obs)
            elif self.learns and each.obs is not None and len(each.steps.rewards) >= cut_after:
                self._finished.append(each.steps.take(each.obs))
        played = self._take()
        self.length += any(each is not None for each in acted)
        for each, one in zip(asked, acted, strict=True):
            if one is not None and each.obs is not None:
                self.agents[each.agent] = each.steps
                self._acted[each.steps.policy_id] += each.steps.newest is None
                each.steps.act(each.obs, one)
        return played

    def end(self, last: Sequence[AgentObservation], *, truncated: bool) -> Played | None:
        """End the episode with the `last` observations and rewards of its agents, or of some.

        Returns what is finished, None where there is nothing to learn from.
        """
        for each in last:
            self._credit(each.steps, each.reward)
        observations = {each.agent: each.obs for each in last}
        for agent in list(self.agents):
            self._leave(agent, observations.get(agent), truncated=truncated)
        means = {policy_id: self._rewards[policy_id] / agents for policy_id, agents in self._acted.items() if agents}
        done = Episode(float(sum(self._rewards.values())), self.length, policy_rewards=means)
        return self._take(done) if self.learns and self.length else None

    def _credit(self, steps: AgentSteps, reward: float) -> None:
        self._rewards[steps.policy_id] += reward
        steps.credit(reward)

    def _leave(self, agent: AgentId, obs: Array | None, *, truncated: bool = False) -> None:
        if found := self.agents.pop(agent).end(obs, truncated=truncated):
            self._finished.append(found)

    def _take(self, done: Episode | None = None) -> Played | None:
        if not self._finished and done is None:
            return None
        played = Played(self._finished, self.length - self._reported, done)
        self._finished, self._reported = [], self.length
        return played
