"""Environments as a worker steps them: their columns by the policy that acts in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from reef.config import AlgorithmConfig
from reef.envs.seeding import EpisodeSeeds
from reef.envs.vector import StepResult, VectorEnv
from reef.envs.wrappers import ActionTransform, RewardTransform
from reef.spaces import Layout, Space
from reef.types import DEFAULT_POLICY, ONLY_AGENT, AgentId, Array, PolicyId, State


class Columns(NamedTuple):
    """The B columns in which one policy acts; a column is an (environment, agent) pair."""

    observation_space: Space
    action_space: Space
    # from what the policy chose to what the environments take
    action_transform: ActionTransform
    # from what the environments give to what is trained on
    reward_transform: RewardTransform
    # [B] the environment that each column belongs to
    envs: Array
    # [B] bool, kept up to date: whether the agent is there, and its observation is one; None: always
    present: Array | None = None
    # the agents of each environment, in the order of its columns
    agents: Sequence[AgentId] = (ONLY_AGENT,)
    # whether a column's own steps may span several of the environment: `live` says where one ends
    takes_turns: bool = False
    # whether a step may be one of some environments alone, which `live` says, and the next one is for those `present`
    in_batches: bool = False

    @classmethod
    def of(
        cls, config: AlgorithmConfig, observation_space: Space, action_space: Space, envs: Array, *, atari: bool = False
    ) -> Columns:
        """Columns of these spaces, whose actions and rewards are changed as the settings of their policy say."""
        layout = Layout.of(action_space)
        actions = ActionTransform(layout, normalize=config.normalize_actions, clip=config.clip_actions)
        return cls(observation_space, action_space, actions, RewardTransform(config.clip_rewards, atari=atari), envs)


class EnvStep(NamedTuple):
    """One step of E environments."""

    # what it was for each policy
    results: dict[PolicyId, StepResult]
    # [E] bool: its episode is over, for all of its agents; None: nowhere
    ended: Array | None
    # [E] bool, False: a dead step, which counts for nothing; None: all count
    live: Array | None


class PolicyEnvs(Protocol):
    """E environments of one kind, where an ended one starts its next episode within the same step.

    An environment that has `ended` with a dead step failed and was recreated: its episode is to be forgotten.
    """

    name: str
    num_envs: int
    # the environments, or the one that holds all of them
    envs: list[Any]
    columns: dict[PolicyId, Columns]

    @property
    def seeds(self) -> EpisodeSeeds:
        """Of the episodes of each environment."""

    def reset(self) -> dict[PolicyId, Array]:
        """Begin a new episode in every environment and return the observations [B, *obs] by policy."""

    def step(self, actions: dict[PolicyId, Array]) -> EnvStep:
        """Step every environment once; `actions` [B, *action] as the policies chose them."""

    def state(self) -> State:
        """The episodes in progress, to go on with elsewhere."""

    def set_state(self, state: State) -> tuple[dict[PolicyId, Array], Array]:
        """Go on with them as far as the environments reach.

        Returns the observations [B, *obs] by policy, and which environments go on, [E] bool; others begin episodes.
        """

    def roles(self, env: int) -> Mapping[AgentId, PolicyId]:
        """By agent the policy that it acts with in the episode in progress; filled while that begins."""

    def close(self) -> None:
        """Close every environment; what is raised thereby is logged."""


class SingleAgentEnvs:
    """The `PolicyEnvs` of one agent: every environment is a column of the default policy."""

    def __init__(self, env: VectorEnv) -> None:
        self.env = env
        self.name, self.num_envs, self.envs = env.name, env.num_envs, env.envs
        transforms = env.action_transform, env.reward_transform
        own = Columns(env.observation_space, env.action_space, *transforms, np.arange(env.num_envs), env.present)
        own = own._replace(in_batches=env.present is not None)
        self.columns = {DEFAULT_POLICY: own}

    @property
    def seeds(self) -> EpisodeSeeds:
        """Of each environment."""
        return self.env.seeds

    def reset(self) -> dict[PolicyId, Array]:
        """Begin a new episode in every environment."""
        return {DEFAULT_POLICY: self.env.reset()}

    def step(self, actions: dict[PolicyId, Array]) -> EnvStep:
        """Step every environment once."""
        result = self.env.step(actions[DEFAULT_POLICY])
        ended = np.bincount(list(result.final_obs), minlength=self.num_envs) > 0 if result.final_obs else None
        return EnvStep({DEFAULT_POLICY: result}, ended, result.live)

    def state(self) -> State:
        """The episodes in progress."""
        return self.env.state()

    def set_state(self, state: State) -> tuple[dict[PolicyId, Array], Array]:
        """The reverse of `state`."""
        return {DEFAULT_POLICY: self.env.set_state(state)}, self.env.resumed

    def roles(self, env: int) -> Mapping[AgentId, PolicyId]:
        """The one agent's."""
        return {ONLY_AGENT: DEFAULT_POLICY}

    def close(self) -> None:
        """Close every environment."""
        self.env.close()
