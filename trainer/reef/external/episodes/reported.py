"""What a client knows of an open episode, until it is sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reef.errors import ConfigError
from reef.external.episodes.steps import check_reward
from reef.external.wire import LastStep, Step
from reef.types import AgentId

ALL = "__all__"


@dataclass(slots=True)
class ReportedEpisode:
    """Rewards that were not sent yet, and which agents are there. The agent is None where an episode has one."""

    has_agents: bool
    rewards: dict[AgentId | None, float] = field(default_factory=dict)  # since the agent's last action
    acted: set[AgentId | None] = field(default_factory=set)  # agents that are there
    ended: set[AgentId | None] = field(default_factory=set)  # of these, those that are done

    def steps(self, episode_id: str, obs: Any, action: Any) -> list[Step]:
        """Observations, or those by agent, with what was credited; ConfigError for another form."""
        if not self.has_agents:
            return [Step(episode_id=episode_id, obs=obs, reward=self.rewards.get(None, 0.0), action=action)]
        if not isinstance(obs, Mapping) or not obs:
            raise ConfigError(
                f"episode {episode_id!r} has agents: give a mapping {{agent: observation}} of at least one."
            )
        acting = [agent for agent in obs if agent not in self.ended]
        if action is not None and (not isinstance(action, Mapping) or action.keys() != set(acting)):
            raise ConfigError(f"episode {episode_id!r}: give a mapping {{agent: action}} of the agents that act.")
        steps = [
            Step(
                episode_id=episode_id,
                agent_id=agent,
                obs=obs[agent],
                reward=self.rewards.get(agent, 0.0),
                action=None if action is None else action[agent],
            )
            for agent in acting
        ]
        return [*steps, *self.endings(episode_id, obs)]

    def endings(self, episode_id: str, obs: Mapping[Any, Any]) -> list[Step]:
        """The last observations, if there are, of the agents that are done."""
        return [
            Step(
                episode_id=episode_id,
                agent_id=agent,
                obs=obs.get(agent),
                reward=self.rewards.get(agent, 0.0),
                done=True,
            )
            for agent in self.ended
        ]

    def sent(self, step: Step) -> None:
        """Forget what was sent."""
        self.rewards.pop(step.agent_id, None)
        if step.done:
            self.ended.discard(step.agent_id)
            self.acted.discard(step.agent_id)
        else:
            self.acted.add(step.agent_id)

    def last_steps(self, obs: Any) -> list[LastStep]:
        """The last observations, and what was credited; ConfigError for another form."""
        if not self.has_agents:
            return [LastStep(obs=obs, reward=self.rewards.get(None, 0.0))]
        if not isinstance(obs, Mapping):
            raise ConfigError("end_episode: an episode has agents here: give a mapping {agent: observation}.")
        agents = [agent for agent in {**obs, **self.rewards} if agent in self.acted or agent in self.rewards]
        return [LastStep(agent_id=agent, obs=obs.get(agent), reward=self.rewards.get(agent, 0.0)) for agent in agents]

    def credit(self, episode_id: str, reward: Any, done: Mapping[AgentId, bool]) -> None:
        """Add rewards, and note which agents are done; raises as `PolicyClient.log_returns`."""
        if not self.has_agents and done:
            raise ConfigError(
                f"log_returns: multiagent_done_dict={done!r}: an episode has one agent here. Leave it out, or give the "
                "server policies and policy_mapping_fn."
            )
        if self.has_agents and not isinstance(reward, Mapping):
            raise ConfigError(f"log_returns: reward={reward!r}: an episode has agents here: give {{agent: reward}}.")
        if done.get(ALL):
            raise ConfigError(f"log_returns: multiagent_done_dict has {ALL!r}: call end_episode to end it for all.")
        ended = {agent for agent, is_done in done.items() if is_done}
        if unknown := ended - self.acted:
            names = ", ".join(sorted(map(repr, unknown)))
            raise ConfigError(f"log_returns: multiagent_done_dict: {names} never acted, or ended before.")
        rewards = reward if self.has_agents else {None: reward}
        for agent, one in rewards.items():
            where = f"episode {episode_id!r}" + (f", agent {agent!r}" if self.has_agents else "")
            acted = self.has_agents or agent in self.acted
            check_reward(where, float(one), self.rewards.get(agent, 0.0), has_acted=acted)
        for agent, one in rewards.items():
            self.rewards[agent] = self.rewards.get(agent, 0.0) + float(one)
        self.ended |= ended
