"""Environments of several agents: the class to derive from, and one of independent agents."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym

from reef.envs.remote.env import RemoteEnv
from reef.envs.vector import close_all
from reef.errors import ConfigError, nearest, sentence
from reef.spaces import Space
from reef.types import AgentId

ALL = "__all__"  # in `terminated` and `truncated`: the episode of all agents
RESET = "({agent: obs}, {agent: info})"
STEP = "({agent: obs}, {agent: reward}, {agent: terminated}, {agent: truncated}, {agent: info})"


class MultiAgentEnv(ABC):
    """Subclass it for an environment of your own. Every agent that is there acts in every step.

    `possible_agents` are all that there may ever be. `observation_spaces` and `action_spaces` have a space for each.
    With `agents_take_turns` those act in a step that had an observation in the step before; the others wait.
    """

    agents_take_turns: bool = False
    possible_agents: Sequence[AgentId]
    observation_spaces: Mapping[AgentId, Space]
    action_spaces: Mapping[AgentId, Space]

    @abstractmethod
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[AgentId, Any], dict[AgentId, Any]]:
        """Begin an episode; returns an observation and an info for each agent that is there."""

    @abstractmethod
    def step(
        self, actions: dict[AgentId, Any]
    ) -> tuple[dict[AgentId, Any], dict[AgentId, float], dict[AgentId, bool], dict[AgentId, bool], dict[AgentId, Any]]:
        """Take an action of each agent; returns observations, rewards, terminated, truncated and infos by agent.

        An agent that ends gets its last observation and is not in later steps. "__all__" in terminated or truncated
        ends the episode of all; it ends too once no agent is left.
        """

    def close(self) -> None:  # noqa: B027 (most need nothing)
        """Free what is held."""

    def with_agent_groups(
        self,
        groups: Mapping[AgentId, Sequence[AgentId]],
        obs_space: Space | None = None,
        act_space: Space | None = None,
    ) -> MultiAgentEnv:
        """This environment with groups of agents, by id, as one agent each: their observations and actions are tuples.

        Agents in no group stay as they are. The spaces of groups are Tuples of the agents' own unless they are given.
        Raises ConfigError for an agent that does not exist, or is in two groups.
        """
        from reef.envs.agents.grouping import GroupedAgents  # which derives from this class

        return GroupedAgents(self, groups, obs_space, act_space)


class IndependentAgents(MultiAgentEnv):
    """Agents 0, 1, ... with a Gymnasium environment each, which end apart.

    `env_config`: {"env": "CartPole-v1", "num_agents": 2}; the rest of it goes to each environment.
    """

    def __init__(self, env_config: Mapping[str, Any]) -> None:
        given = dict(env_config)
        name, count = given.pop("env", None), given.pop("num_agents", 2)
        if not isinstance(name, str) or type(count) is not int or count < 1:
            wanted = "expected env, the name of an environment, and num_agents, at least 1"
            raise ConfigError(
                f"env_config={dict(env_config)}: {wanted}, for example {{env: CartPole-v1, num_agents: 2}}."
            )
        if ":" not in name and name not in gym.registry:
            raise ConfigError(f"env_config.env={name!r} is not registered with Gymnasium.{nearest(name, gym.registry)}")
        self.envs = [gym.make(name, **given) for _ in range(count)]
        self.possible_agents = list(range(count))
        self.observation_spaces = {agent: one.observation_space for agent, one in enumerate(self.envs)}
        self.action_spaces = {agent: one.action_space for agent, one in enumerate(self.envs)}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin an episode of each; their seeds follow from `seed`."""
        begun = [one.reset(seed=None if seed is None else seed + n, options=options) for n, one in enumerate(self.envs)]
        return {agent: obs for agent, (obs, _) in enumerate(begun)}, {}

    def step(self, actions: dict[AgentId, Any]) -> Any:
        """Step those that have not ended."""
        stepped = {agent: self.envs[int(agent)].step(action) for agent, action in actions.items()}
        return tuple({agent: result[part] for agent, result in stepped.items()} for part in range(5))

    def close(self) -> None:
        """Close each."""
        close_all(self.envs, type(self).__name__)


def is_multi_agent(env: object) -> bool:
    """Whether it is a `MultiAgentEnv`, or an environment of PettingZoo."""
    return isinstance(env, MultiAgentEnv) or (hasattr(env, "possible_agents") and callable(getattr(env, "step", None)))


def agent_spaces(env: Any, name: str) -> dict[AgentId, tuple[Space, Space]]:
    """The two spaces of each possible agent; ConfigError when one has none."""
    if isinstance(env, RemoteEnv):  # which has found them there
        spaces: dict[AgentId, tuple[Space, Space]] = env.process.begun.agents
        return spaces
    found = {}
    for agent in env.possible_agents:
        try:
            if isinstance(env, MultiAgentEnv):
                found[agent] = env.observation_spaces[agent], env.action_spaces[agent]
            else:
                found[agent] = env.observation_space(agent), env.action_space(agent)
        except Exception as error:
            raise ConfigError(
                f"environment {name!r} has no spaces for its agent {agent!r}: {type(error).__name__}: "
                f"{sentence(error)} Give observation_spaces and action_spaces one for each of possible_agents."
            ) from error
    if not found:
        raise ConfigError(f"environment {name!r} has no possible_agents: name all agents that there may ever be.")
    return found
