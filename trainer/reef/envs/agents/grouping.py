"""Groups of agents that act as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gymnasium import spaces

from reef.envs.multi_agent import ALL, MultiAgentEnv, agent_spaces
from reef.errors import ConfigError
from reef.spaces import Space
from reef.types import AgentId


class GroupedAgents(MultiAgentEnv):
    """Agents of `env` in groups: a group's observation and action are tuples, its reward is the sum."""

    def __init__(
        self, env: Any, groups: Mapping[AgentId, Sequence[AgentId]], obs_space: Space | None, act_space: Space | None
    ) -> None:
        """See `MultiAgentEnv.with_agent_groups`."""
        if getattr(env, "agents_take_turns", False):
            raise ConfigError("with_agent_groups: agents that take turns cannot act as one. Leave it out.")
        self.env, self.groups = env, {group: tuple(agents) for group, agents in groups.items()}
        own = agent_spaces(env, type(env).__name__)
        members = [agent for agents in self.groups.values() for agent in agents]
        for agent in members:
            if agent not in own:
                raise ConfigError(f"with_agent_groups: there is no agent {agent!r}. The agents are {list(own)}.")
            if members.count(agent) > 1:
                raise ConfigError(f"with_agent_groups: agent {agent!r} is in two places. Leave one out.")
        if clash := [group for group in self.groups if group in own and group not in members]:
            raise ConfigError(f"with_agent_groups: {clash[0]!r} is an agent too. Give the group another name.")
        alone = [agent for agent in own if agent not in members]
        self.possible_agents = [*self.groups, *alone]
        self.observation_spaces = {agent: own[agent][0] for agent in alone}
        self.action_spaces = {agent: own[agent][1] for agent in alone}
        for group, agents in self.groups.items():
            self.observation_spaces[group] = obs_space or spaces.Tuple([own[agent][0] for agent in agents])
            self.action_spaces[group] = act_space or spaces.Tuple([own[agent][1] for agent in agents])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin an episode, in which every agent of a group must be."""
        obs, infos = self.env.reset(seed=seed, options=options)
        return self._together(obs), self._infos(infos)

    def step(self, actions: dict[AgentId, Any]) -> Any:
        """Step the agents; a group ends when its agents do, all in the same step."""
        own = {agent: action for agent, action in actions.items() if agent not in self.groups}
        for group in self.groups.keys() & actions.keys():
            own.update(zip(self.groups[group], actions[group], strict=True))
        obs, rewards, terminated, truncated, infos = self.env.step(own)
        summed = self._alone(rewards)
        for group, agents in self.groups.items():
            if found := [float(rewards[agent]) for agent in agents if agent in rewards]:
                summed[group] = sum(found)
        return self._together(obs), summed, self._ended(terminated), self._ended(truncated), self._infos(infos)

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def _alone(self, values: Mapping[Any, Any]) -> dict[Any, Any]:
        members = {agent for agents in self.groups.values() for agent in agents}
        return {agent: value for agent, value in values.items() if agent not in members}

    def _together(self, obs: Mapping[AgentId, Any]) -> dict[AgentId, Any]:
        found = self._alone(obs)
        for group, agents in self.groups.items():
            there = [agent for agent in agents if agent in obs]
            if there and len(there) < len(agents):
                raise ValueError(f"of the group {group!r} only {there} have an observation: its agents act together")
            if there:
                found[group] = tuple(obs[agent] for agent in agents)
        return found

    def _ended(self, flags: Mapping[AgentId, bool]) -> dict[AgentId, bool]:
        found = self._alone(flags)
        for group, agents in self.groups.items():
            ended = [agent for agent in agents if flags.get(agent)]
            if ended and len(ended) < len(agents):
                raise ValueError(f"of the group {group!r} only {ended} end: its agents end together")
            found[group] = bool(ended) or bool(flags.get(ALL))
        return found

    def _infos(self, infos: Mapping[AgentId, Any]) -> dict[AgentId, Any]:
        groups = {group: {agent: infos.get(agent) for agent in agents} for group, agents in self.groups.items()}
        return {**self._alone(infos), **groups}
