"""Observations that a function makes of those of all agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reef.callbacks.hooks import guarded
from reef.config import AlgorithmConfig
from reef.config.loading import load_function
from reef.envs.multi_agent import MultiAgentEnv, agent_spaces
from reef.errors import CallbackError, ConfigError
from reef.spaces import Space
from reef.types import AgentId

KEY = "observation_fn"


class ObservedAgents(MultiAgentEnv):
    """`env`, whose observations go through the setting `observation_fn`."""

    def __init__(self, env: Any, config: AlgorithmConfig, name: str) -> None:
        """The spaces of observations are those of the agents' policies where these name some."""
        self.env, self._function = env, load_function(config.observation_fn, KEY, "agent_obs")
        self.agents_take_turns = getattr(env, "agents_take_turns", False)
        own = agent_spaces(env, name)
        self.possible_agents = list(own)
        self.observation_spaces = {agent: _space(config, agent, spaces[0]) for agent, spaces in own.items()}
        self.action_spaces = {agent: spaces[1] for agent, spaces in own.items()}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin an episode."""
        obs, infos = self.env.reset(seed=seed, options=options)
        return self._observed(obs), infos

    def step(self, actions: dict[AgentId, Any]) -> Any:
        """Step the environment."""
        obs, *rest = self.env.step(actions)
        return self._observed(obs), *rest

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def _observed(self, obs: Mapping[AgentId, Any]) -> Any:
        found = guarded(KEY, self._function, agent_obs=dict(obs))
        if not isinstance(found, Mapping) or found.keys() != obs.keys():
            text = f"expected a dict with an observation for each of {list(obs)}"
            raise CallbackError(f"{KEY} returned {found!r}: {text}.")
        return found


def _space(config: AlgorithmConfig, agent: AgentId, own: Space) -> Space:
    if not config.maps_each_episode:
        return config.spec(config.policy_of(agent)).observation_space or own
    given = [space for name in config.policies if (space := config.spec(name).observation_space) is not None]
    if any(space != given[0] for space in given):
        raise ConfigError(
            f"{KEY}: policy_mapping_fn is asked in each episode, and policies have other spaces. Give all of policies "
            "the observation_space that it makes."
        )
    return given[0] if given else own
