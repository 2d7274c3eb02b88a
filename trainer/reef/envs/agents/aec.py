"""Turn-based environments of PettingZoo (AEC) as environments of several agents."""

from __future__ import annotations

from typing import Any

from reef.envs.multi_agent import MultiAgentEnv
from reef.types import AgentId


class AECAgents(MultiAgentEnv):
    """An AEC environment: in each step one agent acts.

    An agent gets what `last()` says when it is its turn: its observation, and its reward since its last action.
    """

    agents_take_turns = True

    def __init__(self, env: Any) -> None:
        self.env = env
        self.possible_agents = list(env.possible_agents)
        self.observation_spaces = {agent: env.observation_space(agent) for agent in self.possible_agents}
        self.action_spaces = {agent: env.action_space(agent) for agent in self.possible_agents}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin an episode; only the first agent to act has an observation."""
        self.env.reset(seed=seed, options=options)
        obs, _, _, _, infos = self._next_turn()
        return obs, infos

    def step(self, actions: dict[AgentId, Any]) -> Any:
        """Take the action of the agent whose turn it is."""
        (action,) = actions.values()
        self.env.step(action)
        return self._next_turn()

    def _next_turn(self) -> Any:
        """Go on to the next agent that acts; those that have ended are let go of on the way."""
        obs: dict[AgentId, Any] = {}
        rewards: dict[AgentId, float] = {}
        terminated: dict[AgentId, bool] = {}
        truncated: dict[AgentId, bool] = {}
        infos: dict[AgentId, Any] = {}
        while self.env.agents:
            agent = self.env.agent_selection
            obs[agent], reward, terminated[agent], truncated[agent], infos[agent] = self.env.last()
            rewards[agent] = float(reward)
            if not (terminated[agent] or truncated[agent]):
                break
            self.env.step(None)
        return obs, rewards, terminated, truncated, infos

    def close(self) -> None:
        """Close the environment."""
        self.env.close()
