"""Environments of several agents that act at the same time, stepped as columns of their policies."""

from __future__ import annotations

import logging
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from reef.config import AlgorithmConfig
from reef.envs.by_policy import AgentGroup, EnvStep
from reef.envs.curriculum.tasks import Tasks
from reef.envs.failures import env_name, failure
from reef.envs.loop import REPLAY_LIMIT
from reef.envs.seeding import EpisodeSeeds, column_seeds
from reef.envs.vector import AgentsStep, EpisodeListener, close_all
from reef.errors import CallbackError, ConfigError, nearest, sentence
from reef.spaces import Space
from reef.types import AgentId, Array, PolicyId, State

logger = logging.getLogger(__name__)
ALL = "__all__"  # in `terminated` and `truncated`: the episode of all agents
RESET = "({agent: obs}, {agent: info})"
STEP = "({agent: obs}, {agent: reward}, {agent: terminated}, {agent: truncated}, {agent: info})"


class MultiAgentEnv(ABC):
    """Subclass it for an environment of your own. Every agent that is there acts in every step.

    `possible_agents` are all that there may ever be. `observation_spaces` and `action_spaces` have a space for each.
    """

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


class IndependentAgents(MultiAgentEnv):
    """Agents 0, 1, ... with a Gymnasium environment each, which end apart.

    `env_config`: {"env": "CartPole-v1", "num_agents": 2}; the rest of it goes to each environment.
    """

    def __init__(self, env_config: Mapping[str, Any]) -> None:
        given = dict(env_config)
        name, count = given.pop("env", None), given.pop("num_agents", 2)
        if name is None or not isinstance(count, int) or count < 1:
            wanted = "expected env, the name of an environment, and num_agents, at least 1"
            raise ConfigError(f"env_config={given}: {wanted}, for example {{env: CartPole-v1, num_agents: 2}}.")
        if isinstance(name, str) and ":" not in name and name not in gym.registry:
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
    """Whether it is a `MultiAgentEnv`, or a parallel environment of PettingZoo; ConfigError where agents take turns."""
    if hasattr(env, "agent_iter"):
        raise ConfigError(
            f"environment {type(env).__name__!r}: its agents take turns, which is not available yet. If they can act "
            "at the same time, wrap it with pettingzoo.utils.conversions.aec_to_parallel."
        )
    return isinstance(env, MultiAgentEnv) or (hasattr(env, "possible_agents") and callable(getattr(env, "step", None)))


def agent_spaces(env: Any, name: str) -> dict[AgentId, tuple[Space, Space]]:
    """The two spaces of each possible agent; ConfigError when one has none."""
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


class MultiAgentEnvs:
    """The `PolicyEnvs` of several agents: a column is an agent of an environment.

    An agent that is not there, before it comes or after it has ended, has dead steps. The next episode of an
    environment begins once all of its agents have ended.
    """

    def __init__(
        self,
        config: AlgorithmConfig,
        worker_index: int,
        num_envs: int,
        create: Callable[[int], Any],
        policy_of: Callable[[AgentId], PolicyId],
        listener: EpisodeListener | None = None,
    ) -> None:
        """`create(index)` makes an environment. Raises ConfigError for a policy whose agents have other spaces."""
        self.name, self.num_envs = env_name(config.env), num_envs
        self.envs, self._listener = [create(0)], listener
        try:
            self._groups = _groups(config, agent_spaces(self.envs[0], self.name), policy_of, num_envs)
        except BaseException:
            self.close()
            raise
        self.envs += [create(index) for index in range(1, num_envs)]
        self.columns = {policy_id: group.columns for policy_id, group in self._groups.items()}
        # by environment and agent: the group and the column
        self._members: list[dict[AgentId, tuple[AgentGroup, int]]] = [
            {
                agent: (group, group.of(env).start + place)
                for group in self._groups.values()
                for place, agent in enumerate(group.agents)
            }
            for env in range(num_envs)
        ]
        self._worker_index = worker_index
        self._horizon = config.horizon or sys.maxsize
        seeds = column_seeds(config.seed, worker_index, num_envs, in_evaluation=config.in_evaluation)
        self._seeds = EpisodeSeeds(seeds)
        # of each environment: by policy the actions [B, *action] of every step of the episode in progress
        self._history: list[deque[dict[PolicyId, Array]]] = [deque(maxlen=REPLAY_LIMIT) for _ in range(num_envs)]
        self._lengths = [0] * num_envs
        self._tasks = Tasks(self.envs, self.name)

    def reset(self) -> dict[PolicyId, Array]:
        """Begin a new episode in every environment."""
        for env in range(self.num_envs):
            self._begin(env)
        return self._observations()

    def _observations(self) -> dict[PolicyId, Array]:
        return {policy_id: group.obs for policy_id, group in self._groups.items()}

    def step(self, actions: dict[PolicyId, Array]) -> EnvStep:
        """Step every environment once, with the actions of the agents that are there."""
        live = {policy_id: group.present.copy() for policy_id, group in self._groups.items()}
        taken = self._taken({policy_id: own.copy() for policy_id, own in actions.items()})
        ended = np.zeros(self.num_envs, np.bool_)
        for env in range(self.num_envs):
            acting, result, ended[env] = self._step(env, taken)
            if self._listener is not None:
                self._listener.stepped(env, acting, result, ended=bool(ended[env]))
            if ended[env]:
                self._begin(env)
        results = {policy_id: group.result(live[policy_id]) for policy_id, group in self._groups.items()}
        return EnvStep(results, ended if ended.any() else None, None)

    def _taken(self, actions: dict[PolicyId, Array]) -> dict[PolicyId, Array]:
        """Have the agents of every environment take these `actions` [B, *action]."""
        for policy_id, group in self._groups.items():
            group.take(actions[policy_id])
        return actions

    def _step(self, env: int, actions: dict[PolicyId, Array]) -> tuple[dict[AgentId, Any], AgentsStep, bool]:
        """Step one environment, whose agents have taken `actions`; the last value is whether its episode ended."""
        self._history[env].append(actions)
        self._lengths[env] += 1
        members = self._members[env]
        acting = {agent: group.taken[column] for agent, (group, column) in members.items() if group.present[column]}
        try:
            obs, rewards, terminated, truncated, infos = self.envs[env].step(acting)
            if self._lengths[env] >= self._horizon:
                truncated = {**truncated, ALL: True}
            result = AgentsStep(obs, rewards, terminated, truncated, infos)
            over, cut = bool(terminated.get(ALL)), bool(truncated.get(ALL))
            left = [agent for agent in acting if self._goes_on(env, agent, result, over, cut)]
            if not obs.keys() | rewards.keys() <= acting.keys():
                self._arrive(env, acting, result)
        except Exception as error:
            where = f"in environment {env} of worker {self._worker_index}, step {self._lengths[env]} of its episode"
            raise failure(self.name, "step", where, error, expected=STEP) from error
        goes_on = left or any(group.present[column] for group, column in members.values())
        return acting, result, over or cut or not goes_on

    def _goes_on(self, env: int, agent: AgentId, result: AgentsStep, over: bool, cut: bool) -> bool:
        """Write what came of an agent's action: whether it goes on; the episode of all is `over`, or `cut` off."""
        group, column = self._members[env][agent]
        stopped = bool(result.truncated.get(agent))
        ends = bool(result.terminated.get(agent)) or (over and not stopped)
        stops = not ends and (stopped or cut)
        group.rewards[column] = result.rewards.get(agent, 0.0)
        if agent in result.obs:
            group.write(column, agent, result.obs[agent])
        elif not ends:
            raise ValueError(
                f"agent {agent!r} goes on without an observation: all that are there act each step, and one that is "
                "truncated has a last observation"
            )
        if not (ends or stops):
            return True
        group.terminated[column], group.truncated[column] = ends, stops
        group.final_obs[column] = group.obs[column].copy()
        group.present[column] = False
        return False

    def _arrive(self, env: int, acting: Mapping[AgentId, Any], result: AgentsStep) -> None:
        """Take in the agents that come with a step; one that has ended already, or ends with it, does not."""
        for agent in result.obs.keys() - acting.keys():
            if not (result.terminated.get(agent) or result.truncated.get(agent)):
                self._appear(env, agent, result.obs[agent])
        for agent in result.rewards.keys() - acting.keys():
            if result.rewards[agent]:
                raise ValueError(f"agent {agent!r} got the reward {result.rewards[agent]} while it was not there")

    def _begin(self, env: int, replayed: Sequence[dict[PolicyId, Array]] = ()) -> None:
        """Begin an episode, and take the actions `replayed`."""
        self._history[env].clear()
        self._lengths[env] = 0
        for group in self._groups.values():
            group.present[group.of(env)] = False
        try:
            self._tasks.begin(env)
            options = {} if self._listener is None else self._listener.begins(env)
            obs, infos = self.envs[env].reset(seed=self._seeds.next(env), **options)
            if not obs:
                raise ValueError("no agent has an observation")
            for agent, value in obs.items():
                self._appear(env, agent, value)
        except CallbackError:
            raise
        except Exception as error:
            where = f"in environment {env} of worker {self._worker_index}"
            raise failure(self.name, "reset", where, error, expected=RESET) from error
        for actions in replayed:
            _, (obs, *_, infos), ended = self._step(env, self._taken(actions))
            if ended:
                raise ValueError("the episode ended before the saved one")
        if self._listener is not None:
            self._listener.began(env, obs, infos)

    def _appear(self, env: int, agent: AgentId, obs: Any) -> None:
        if agent not in self._members[env]:
            raise ValueError(f"agent {agent!r} is not among possible_agents {list(self._members[env])}")
        group, column = self._members[env][agent]
        group.write(column, agent, obs)
        group.present[column] = True

    def state(self) -> State:
        """The seeds, and for each environment the actions [steps, agents, *action] of its episode so far, by policy."""
        episodes = [
            {"length": length, "actions": self._own(env) if len(self._history[env]) == length else None}
            for env, length in enumerate(self._lengths)
        ]
        return {"seeds": self._seeds.state(), "episodes": episodes, **self._tasks.state()}

    def _own(self, env: int) -> dict[PolicyId, Array]:
        """The actions [steps, agents, *action] of an environment's episode, by policy."""
        found = {}
        for policy_id, group in self._groups.items():
            layout = group.action_layout
            found[policy_id] = np.zeros((self._lengths[env], len(group.agents), *layout.shape), layout.action_dtype)
            for t, actions in enumerate(self._history[env]):
                found[policy_id][t] = actions[policy_id][group.of(env)]
        return found

    def set_state(self, state: State) -> tuple[dict[PolicyId, Array], Array]:
        """Begin every episode again from its seed and replay its actions; one that cannot be replayed is a new one."""
        self._seeds.restore(state["seeds"])
        resumed = np.zeros(self.num_envs, np.bool_)
        for env in range(self.num_envs):
            stored = state["episodes"][env] if env < len(state["episodes"]) else None
            self._tasks.restore(env, state, "begun")
            resumed[env] = stored is not None and stored["actions"] is not None and self._replay(env, stored)
            self._tasks.restore(env, state)
            if not resumed[env]:
                self._begin(env)
        return self._observations(), resumed

    def _replay(self, env: int, stored: State) -> bool:
        self._seeds.episodes[env] -= 1  # `_begin` counts it again
        steps: list[dict[PolicyId, Array]] = [{} for _ in range(stored["length"])]
        for policy_id, group in self._groups.items():
            layout, count = group.action_layout, len(group.present)
            for t, actions in enumerate(steps):
                actions[policy_id] = np.zeros((count, *layout.shape), layout.action_dtype)
                actions[policy_id][group.of(env)] = stored["actions"][policy_id][t]
        try:
            self._begin(env, steps)
        except CallbackError:
            raise
        except Exception as error:
            logger.warning("environment %d of %s failed while its episode was replayed: %r", env, self.name, error)
            return False
        return True

    def close(self) -> None:
        """Close every environment; what is raised thereby is logged."""
        close_all(self.envs, self.name)


def _groups(
    config: AlgorithmConfig,
    spaces: Mapping[AgentId, tuple[Space, Space]],
    policy_of: Callable[[AgentId], PolicyId],
    num_envs: int,
) -> dict[PolicyId, AgentGroup]:
    """The agents by policy, in the order of the environment's agents."""
    agents: dict[PolicyId, list[AgentId]] = {}
    for agent in spaces:
        policy_id = policy_of(agent)
        agents.setdefault(policy_id, []).append(agent)
        first = agents[policy_id][0]
        if spaces[agent] != spaces[first]:
            raise ConfigError(
                f"policy_mapping_fn gives the agents {first!r} and {agent!r} the same policy {policy_id!r}, but their "
                f"spaces differ: {spaces[first]} and {spaces[agent]}. Give each of them a policy of its own."
            )
    if not config.agents_share_a_policy and any(len(members) > 1 for members in agents.values()):
        raise ConfigError(
            f"environment {env_name(config.env)!r} has several agents: not available yet with {config.label}. Use PPO."
        )
    for policy_id in config.policies:
        if policy_id not in agents:
            raise ConfigError(
                f"policies={config.policies}: no agent acts with {policy_id!r}; the agents are {list(spaces)}. Leave "
                "it out, or change policy_mapping_fn."
            )
    return {name: AgentGroup(config, members, num_envs, spaces[members[0]]) for name, members in agents.items()}
