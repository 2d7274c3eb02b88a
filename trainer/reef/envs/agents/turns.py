"""Environments of agents that do not act in every step, or whose policies are chosen in each episode."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from reef.config import AlgorithmConfig
from reef.envs.agents.columns import AgentGroup, TurnGroup
from reef.envs.agents.envs import SPACES, MultiAgentEnvs
from reef.envs.loop import REPLAY_LIMIT
from reef.envs.vector import AgentsStep
from reef.errors import ConfigError
from reef.spaces import Layout
from reef.types import AgentId, Array, PolicyId, State


class EpisodeStart(NamedTuple):
    """The episode that a policy mapping function is asked for."""

    # a number of its own among all episodes of the run; those of one environment follow each other. The id of an
    # application's
    episode_id: int | str
    # of the worker: the index of the environment
    env_id: int
    worker_index: int
    # all that there are
    policies: tuple[PolicyId, ...]


class TurnEnvs(MultiAgentEnvs):
    """The `PolicyEnvs` of agents of which some act in a step; each has a column of every policy it may act with.

    An agent acts when it has an observation. Its step ends when it has the next one, or ends itself; `live` says so.
    The mapping function is asked for all agents as an episode begins.
    """

    group_class: ClassVar[type[AgentGroup]] = TurnGroup

    def __init__(self, config: AlgorithmConfig, worker_index: int, num_envs: int, *args: Any) -> None:
        """As `MultiAgentEnvs`."""
        self._roles: list[dict[AgentId, PolicyId]] = [{} for _ in range(num_envs)]
        # of each environment: the agents that have ended
        self._gone: list[set[AgentId]] = [set() for _ in range(num_envs)]
        # of each environment: the actions of every step of the episode in progress, by agent
        self._acted: list[deque[dict[AgentId, Array]]] = [deque(maxlen=REPLAY_LIMIT) for _ in range(num_envs)]
        super().__init__(config, worker_index, num_envs, *args)

    def _make_groups(self) -> dict[PolicyId, Any]:
        if not self.config.maps_each_episode:
            return super()._make_groups()
        return {policy_id: self._group(policy_id, self._possible(policy_id)) for policy_id in self.config.policies}

    def _possible(self, policy_id: PolicyId) -> list[AgentId]:
        """The agents that may act with a policy: of its spaces, or where it names none, of those that all have."""
        spec = self.config.spec(policy_id)
        given = [(place, space) for place, key in enumerate(SPACES) if (space := getattr(spec, key)) is not None]
        found = [
            agent
            for agent, own in self._spaces.items()
            if all(Layout.of(space).fits(Layout.of(own[place])) for place, space in given)
        ]
        if not found or any(self._spaces[agent] != self._spaces[found[0]] for agent in found):
            shown = {agent: list(map(str, self._spaces[agent])) for agent in found or self._spaces}
            raise ConfigError(
                f"policies: {policy_id!r}: policy_mapping_fn is asked in each episode, so which agents act with it is "
                f"not known, and their spaces differ: {shown}. Give the policy the observation_space and action_space "
                "of its agents."
            )
        return found

    def set_policies(self, config: AlgorithmConfig) -> bool:
        """Change to the policies and the mapping of `config`, from the next episodes on.

        Returns whether one that is gone acts in an episode in progress: they must all begin again.
        """
        before = self.config, self._policy_of
        self.config, self._policy_of = config, config.policy_of
        kept = {name: group for name, group in self._groups.items() if name in config.policies}
        try:
            made = {name: self._group(name, self._possible(name)) for name in config.policies if name not in kept}
        except ConfigError:  # nothing has changed
            self.config, self._policy_of = before
            raise
        self._groups = {name: (kept | made)[name] for name in config.policies}
        self.columns = {policy_id: group.columns for policy_id, group in self._groups.items()}
        return any(policy_id not in config.policies for roles in self._roles for policy_id in roles.values())

    def roles(self, env: int) -> Mapping[AgentId, PolicyId]:
        """By agent the policy that it acts with in the episode in progress."""
        return self._roles[env]

    def _assign(self, env: int) -> None:
        """Choose the policies of an episode that begins, unless they are known from a checkpoint."""
        number = self.seeds.episode_id(env, ahead=1)
        episode = EpisodeStart(number, env, self._worker_index, tuple(self._groups))
        for agent in self._spaces:
            self._roles[env][agent] = self._policy_of(agent, episode)

    def _enter(self, env: int) -> None:
        """Find the columns of the agents in an episode that begins."""
        self._members[env] = {}
        for agent, policy_id in self._roles[env].items():
            group = self._groups[policy_id]
            if agent not in group.agents:
                raise ConfigError(
                    f"policy_mapping_fn gives agent {agent!r} the policy {policy_id!r}, whose spaces are those of "
                    f"{group.agents}. Give it one of its own spaces."
                )
            self._members[env][agent] = group, group.of(env).start + group.agents.index(agent)

    def _begin(self, env: int, replayed: Any = (), roles: dict[AgentId, PolicyId] | None = None) -> None:
        self._acted[env].clear()
        self._gone[env].clear()
        self._roles[env] = roles or {}
        if roles is None:
            self._assign(env)
        self._enter(env)
        super()._begin(env, replayed)

    def _taken(self, actions: dict[PolicyId, Array]) -> dict[PolicyId, Array]:
        for policy_id, group in self._groups.items():
            group.take_in(actions[policy_id])
        return actions

    def _taken_again(self, env: int, actions: Any) -> dict[PolicyId, Array]:
        found = {}
        for policy_id, group in self._groups.items():
            layout = group.action_layout
            found[policy_id] = np.zeros((len(group.present), *layout.shape), layout.action_dtype)
            for agent, action in actions.items():
                own, column = self._members[env][agent]
                if own is group:
                    found[policy_id][column] = action
            group.take_in(found[policy_id], group.of(env))
        return found

    def _keep(self, env: int, acting: Mapping[AgentId, Any], actions: dict[PolicyId, Array]) -> None:
        roles, members = self._roles[env], self._members[env]
        self._acted[env].append({agent: actions[roles[agent]][members[agent][1]].copy() for agent in acting})

    def _acting(self, env: int) -> dict[AgentId, Any]:
        members = self._members[env].items()
        return {agent: group.taken[column] for agent, (group, column) in members if group.acting[column]}

    def _take_in(self, env: int, acting: Mapping[AgentId, Any], result: AgentsStep, over: bool, cut: bool) -> bool:
        members, gone = self._members[env], self._gone[env]
        if unknown := (result.obs.keys() | result.rewards.keys()) - members.keys():
            raise ValueError(f"agent {min(unknown, key=str)!r} is not among possible_agents {list(members)}")
        for agent, (group, column) in members.items():
            if agent in gone and result.rewards.get(agent):
                raise ValueError(f"agent {agent!r} got the reward {result.rewards[agent]} while it was not there")
            group.reward(column, result.rewards.get(agent, 0.0))
            if agent in result.obs:
                group.write(column, agent, result.obs[agent])
            stopped = bool(result.truncated.get(agent))
            if result.terminated.get(agent) or (over and not stopped):
                group.end(column, terminated=True)
                gone.add(agent)
            elif stopped or cut:
                self._cut(env, agent, stopped, seen=agent in result.obs)
            elif agent in result.obs:
                group.arrive(column)
                gone.discard(agent)
        if over or cut:
            return False
        waiting = [agent for agent, (group, column) in members.items() if group.waiting[column]]
        goes_on = any(group.present[column] for group, column in members.values())
        if waiting and not goes_on:
            raise ValueError(f"no agent has an observation, although the episode of {waiting} is not over")
        return goes_on

    def _cut(self, env: int, agent: AgentId, stopped: bool, *, seen: bool) -> None:
        """Cut an agent's episode off: it was `stopped` itself, or all are; `seen`: it has a last observation."""
        group, column = self._members[env][agent]
        if seen:
            group.end(column, terminated=False)
        elif stopped and group.waiting[column]:
            raise ValueError(f"agent {agent!r} is truncated without a last observation")
        else:
            group.drop(column)
        self._gone[env].add(agent)

    def state(self) -> State:
        """The seeds, and of each environment the policies and actions of its episode so far, in the agents' order."""
        episodes = [
            {
                "length": length,
                "actions": self._actions_so_far(env) if len(self._acted[env]) == length else None,
                "roles": [self._roles[env].get(agent, "") for agent in self._spaces],
            }
            for env, length in enumerate(self._lengths)
        ]
        return {**super().state(), "episodes": episodes}

    def _actions_so_far(self, env: int) -> list[dict[str, Array]]:
        """Of each agent the steps in which it acted, [n], and its actions, [n, *action]."""
        found = []
        for agent in self._spaces:
            taken = [(t, acted[agent]) for t, acted in enumerate(self._acted[env]) if agent in acted]
            layout = self._members[env][agent][0].action_layout
            none = np.zeros((0, *layout.shape), layout.action_dtype)
            actions = np.stack([action for _, action in taken]) if taken else none
            found.append({"at": np.array([t for t, _ in taken], np.int64), "taken": actions})
        return found

    def _stored_episode(self, env: int, stored: State) -> tuple[Any, ...]:
        steps: list[dict[AgentId, Array]] = [{} for _ in range(stored["length"])]
        for agent, own in zip(self._spaces, stored["actions"], strict=True):
            for t, action in zip(own["at"].tolist(), own["taken"], strict=True):
                steps[t][agent] = action
        return steps, dict(zip(self._spaces, stored["roles"], strict=True))
