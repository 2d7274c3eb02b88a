"""Environments whose agents act at the same time, stepped as columns of their policies."""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Protocol

import numpy as np

from reef.config import AlgorithmConfig
from reef.envs.agents.columns import AgentGroup
from reef.envs.by_policy import EnvStep
from reef.envs.curriculum.tasks import Tasks
from reef.envs.failures import env_name, failure
from reef.envs.loop import REPLAY_LIMIT
from reef.envs.multi_agent import ALL, RESET, STEP, agent_spaces
from reef.envs.remote.env import RemoteEnv, ask_to_close
from reef.envs.seeding import EpisodeSeeds, column_seeds
from reef.envs.vector import AgentsStep, EpisodeListener, close_all
from reef.errors import CallbackError, ConfigError, nearest
from reef.spaces import Layout, Space
from reef.types import AgentId, Array, PolicyId, State

logger = logging.getLogger(__name__)
SPACES = ("observation_space", "action_space")


class EnvMaker(Protocol):
    """Makes the environments of a worker, in this process or in others."""

    listener: EpisodeListener | None

    def agents(self, index: int) -> Any:
        """An environment of several agents, for use."""

    def end(self) -> None:
        """End what it has started."""


class MultiAgentEnvs:
    """The `PolicyEnvs` of several agents: a column is an agent of an environment.

    An agent that is not there, before it comes or after it has ended, has dead steps. The next episode of an
    environment begins once all of its agents have ended.
    """

    group_class: ClassVar[type[AgentGroup]] = AgentGroup

    def __init__(
        self,
        config: AlgorithmConfig,
        worker_index: int,
        num_envs: int,
        make: EnvMaker,
        policy_of: Callable[..., PolicyId],  # of an agent, and its `EpisodeStart`
    ) -> None:
        """`make` makes the environments. Raises ConfigError for a policy whose agents have other spaces."""
        self.config, self.name, self.num_envs = config, env_name(config.env), num_envs
        self.envs, self._listener, self._make = [make.agents(0)], make.listener, make
        try:
            self._spaces = agent_spaces(self.envs[0], self.name)
            self._policy_of = policy_of
            self._groups = self._make_groups()
        except BaseException:
            self.close()
            raise
        self.envs += [make.agents(index) for index in range(1, num_envs)]
        self.columns = {policy_id: group.columns for policy_id, group in self._groups.items()}
        # by environment and agent: the group and the column
        self._members: list[dict[AgentId, tuple[Any, int]]] = [
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
        self.seeds = EpisodeSeeds(seeds)
        # of each environment: by policy the actions [B, *action] of every step of the episode in progress
        self._history: list[deque[dict[PolicyId, Array]]] = [deque(maxlen=REPLAY_LIMIT) for _ in range(num_envs)]
        self._lengths = [0] * num_envs
        self._tasks = Tasks(self.envs, self.name)

    def _make_groups(self) -> dict[PolicyId, Any]:
        """The agents by policy, in the order of the environment's agents."""
        agents: dict[PolicyId, list[AgentId]] = {}
        for agent in self._spaces:
            agents.setdefault(self._policy_of(agent), []).append(agent)
        for policy_id in self.config.policies:
            if policy_id not in agents:
                raise ConfigError(
                    f"policies={list(self.config.policies)}: no agent acts with {policy_id!r}; the agents are "
                    f"{list(self._spaces)}. Leave it out, or change policy_mapping_fn."
                )
        self._check_mapping()
        return {policy_id: self._group(policy_id, members) for policy_id, members in agents.items()}

    def _check_mapping(self) -> None:
        """Raise ConfigError for an agent that is not there; an evaluation may have fewer than training."""
        mapping, known = self.config.policy_mapping_fn, [str(agent) for agent in self._spaces]
        if not isinstance(mapping, dict) or self.config.in_evaluation:
            return
        if unknown := [agent for agent in mapping if agent not in known]:
            raise ConfigError(
                f"policy_mapping_fn: {unknown[0]!r} is no agent of environment {self.name!r}, which has {known}."
                f"{nearest(unknown[0], known)} Leave it out."
            )

    def _group(self, policy_id: PolicyId, members: list[AgentId]) -> AgentGroup:
        if len(members) > 1 and not self.config.agents_share_a_policy:
            raise ConfigError(
                f"environment {self.name!r} has several agents: not available yet with {self.config.label}. Use PPO."
            )
        spaces = spaces_of(self.config, policy_id, {agent: self._spaces[agent] for agent in members})
        return self.group_class(self.config.for_policy(policy_id), members, self.num_envs, spaces)

    def roles(self, env: int) -> Mapping[AgentId, PolicyId]:
        """By agent the policy that it acts with."""
        return {agent: policy_id for policy_id, group in self._groups.items() for agent in group.agents}

    def reset(self) -> dict[PolicyId, Array]:
        """Begin a new episode in every environment."""
        for env in range(self.num_envs):
            self._begin(env)
        return self._observations()

    def _observations(self) -> dict[PolicyId, Array]:
        return {policy_id: group.obs for policy_id, group in self._groups.items()}

    def step(self, actions: dict[PolicyId, Array]) -> EnvStep:
        """Step every environment once, with the actions of the agents that are there."""
        taken = self._taken({policy_id: own.copy() for policy_id, own in actions.items()})
        ended = np.zeros(self.num_envs, np.bool_)
        acting = [self._acting(env) for env in range(self.num_envs)]
        if isinstance(self.envs[0], RemoteEnv):
            self._ask(acting)
        for env in range(self.num_envs):
            result, ended[env] = self._step(env, acting[env], taken)
            if self._listener is not None:
                self._listener.stepped(env, acting[env], result, ended=bool(ended[env]))
            if ended[env]:
                self._begin(env)
        results = {policy_id: group.result() for policy_id, group in self._groups.items()}
        return EnvStep(results, ended if ended.any() else None, None)

    def _taken(self, actions: dict[PolicyId, Array]) -> dict[PolicyId, Array]:
        """Have the agents of every environment take these `actions` [B, *action]."""
        for policy_id, group in self._groups.items():
            group.take(actions[policy_id])
        return actions

    def _ask(self, acting: Sequence[Mapping[AgentId, Any]]) -> None:
        """Have all environments, which have processes of their own, step at the same time."""
        ahead = self._listener is None and not self._tasks.exist  # or something is due between two episodes
        for env, one in enumerate(self.envs):
            seed = self.seeds.current(env, ahead=1) if ahead else None
            with suppress(Exception):  # is raised by the step itself
                one.process.ask_step(acting[env], seed, cut=self._lengths[env] + 1 >= self._horizon)

    def _step(self, env: int, acting: dict[AgentId, Any], actions: dict[PolicyId, Array]) -> tuple[AgentsStep, bool]:
        """Step one environment, whose agents have taken `actions`; the last value is whether its episode ended."""
        self._lengths[env] += 1
        self._keep(env, acting, actions)
        try:
            obs, rewards, terminated, truncated, infos = self.envs[env].step(acting)
            if self._lengths[env] >= self._horizon:
                truncated = {**truncated, ALL: True}
            result = AgentsStep(obs, rewards, terminated, truncated, infos)
            over, cut = bool(terminated.get(ALL)), bool(truncated.get(ALL))
            goes_on = self._take_in(env, acting, result, over, cut)
        except CallbackError:
            raise
        except Exception as error:
            where = f"in environment {env} of worker {self._worker_index}, step {self._lengths[env]} of its episode"
            raise failure(self.name, "step", where, error, expected=STEP) from error
        return result, over or cut or not goes_on

    def _keep(self, env: int, acting: Mapping[AgentId, Any], actions: dict[PolicyId, Array]) -> None:
        """Keep what the agents that act have taken, for `state`."""
        self._history[env].append(actions)

    def _acting(self, env: int) -> dict[AgentId, Any]:
        """The actions of an environment's agents as it takes them."""
        members = self._members[env].items()
        return {agent: group.taken[column] for agent, (group, column) in members if group.present[column]}

    def _take_in(self, env: int, acting: Mapping[AgentId, Any], result: AgentsStep, over: bool, cut: bool) -> bool:
        """Write what came of a step to the columns; returns whether an agent goes on, or has come."""
        left = [agent for agent in acting if self._goes_on(env, agent, result, over, cut)]
        if not result.obs.keys() | result.rewards.keys() <= acting.keys():
            self._arrive(env, acting, result)
        return bool(left) or any(group.present[column] for group, column in self._members[env].values())

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
                f"agent {agent!r} goes on without an observation: all that are there act each step, unless "
                "agents_take_turns is True, and one that is truncated has a last observation"
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
            group.clear(env)
        try:
            self._tasks.begin(env)
            options = {} if self._listener is None else self._listener.begins(env)
            obs, infos = self.envs[env].reset(seed=self.seeds.next(env), **options)
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
            taken = self._taken_again(env, actions)
            (obs, *_, infos), ended = self._step(env, self._acting(env), taken)
            if ended:
                raise ValueError("the episode ended before the saved one")
        if self._listener is not None:
            self._listener.began(env, obs, infos)

    def _taken_again(self, env: int, actions: dict[PolicyId, Array]) -> dict[PolicyId, Array]:
        """As `_taken`, for one environment alone, of what `state` kept."""
        return self._taken(actions)

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
        return {"seeds": self.seeds.state(), "episodes": episodes, **self._tasks.state()}

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
        self.seeds.restore(state["seeds"])
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
        number = self.seeds.episodes[env]
        self.seeds.episodes[env] = number - 1  # `_begin` counts it again
        try:
            self._begin(env, *self._stored_episode(env, stored))
        except CallbackError:
            raise
        except Exception as error:
            logger.warning("environment %d of %s failed while its episode was replayed: %r", env, self.name, error)
            self.seeds.episodes[env] = number  # or the next episode would begin from the same seed
            return False
        return True

    def _stored_episode(self, env: int, stored: State) -> tuple[Any, ...]:
        """What `_begin` replays of a stored episode."""
        steps: list[dict[PolicyId, Array]] = [{} for _ in range(stored["length"])]
        for policy_id, group in self._groups.items():
            layout, count = group.action_layout, len(group.present)
            for t, actions in enumerate(steps):
                actions[policy_id] = np.zeros((count, *layout.shape), layout.action_dtype)
                actions[policy_id][group.of(env)] = stored["actions"][policy_id][t]
        return (steps,)

    def close(self) -> None:
        """Close every environment; what is raised thereby is logged."""
        ask_to_close(self.envs)
        close_all(self.envs, self.name)
        self._make.end()


def spaces_of(
    config: AlgorithmConfig, policy_id: PolicyId, agents: Mapping[AgentId, tuple[Space, Space]]
) -> tuple[Space, Space]:
    """The spaces of a policy: its own, or those of its `agents`; ConfigError where these do not fit."""
    spec = config.spec(policy_id)
    first, spaces = next(iter(agents.items()))
    given = spec.observation_space, spec.action_space
    for agent, own in agents.items():
        if own != spaces and None in given:
            raise ConfigError(
                f"policy_mapping_fn gives the agents {first!r} and {agent!r} the same policy {policy_id!r}, but their "
                f"spaces differ: {spaces} and {own}. Give each of them a policy of its own."
            )
        for key, space, there in zip(SPACES, given, own, strict=True):
            if space is not None and not Layout.of(space).fits(Layout.of(there)):
                raise ConfigError(
                    f"policies: {policy_id!r}: {key}={space} does not fit that of its agent {agent!r}, which is "
                    f"{there}. Leave it out, or change policy_mapping_fn."
                )
    observation, action = (own if space is None else space for space, own in zip(given, spaces, strict=True))
    return observation, action
