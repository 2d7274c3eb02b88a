"""Stepping many environments at once: what every form of it offers."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from reef.config import AlgorithmConfig
from reef.envs.atari.names import is_atari
from reef.envs.failures import describe, env_name
from reef.envs.seeding import EpisodeSeeds, column_seeds
from reef.envs.wrappers import ActionTransform, RewardTransform
from reef.errors import EnvironmentError
from reef.spaces import Layout, Space, first_outside
from reef.types import AgentId, Array, State

logger = logging.getLogger(__name__)


class StepResult(NamedTuple):
    """One step of B columns. The arrays belong to the environment and are overwritten by its next step."""

    obs: Array  # [B, *obs]; where an episode ended, the first observation of the next one
    rewards: Array  # [B] float32 to train on
    terminated: Array  # [B] bool
    truncated: Array  # [B] bool
    final_obs: dict[int, Array]  # the true successor of each column whose episode ended; empty: none did
    live: Array | None  # [B] bool, False: a dead step that counts for nothing; None: all live
    raw_rewards: Array  # [B] float32 as the environment gave them, before clipping: what an episode reports


class AgentsStep(NamedTuple):
    """What an environment answers to the actions of its agents, by agent."""

    obs: Mapping[AgentId, Any]
    rewards: Mapping[AgentId, float]
    terminated: Mapping[AgentId, bool]
    truncated: Mapping[AgentId, bool]
    infos: Mapping[AgentId, Any]


class EpisodeListener:
    """Is called as the environments of a worker are made and stepped; `env` is the index of one. It does nothing."""

    def made(self, env: int, environment: Any, context: Any) -> None:
        """An environment was made, with this `EnvContext`."""

    def begins(self, env: int) -> dict[str, Any]:
        """An episode is about to begin; returns keyword arguments for `reset`."""
        return {}

    def began(self, env: int, obs: Mapping[AgentId, Any], infos: Mapping[AgentId, Any]) -> None:
        """The environment was reset."""

    def stepped(self, env: int, actions: Mapping[AgentId, Any], step: AgentsStep, *, ended: bool) -> None:
        """The environment was stepped; where the episode `ended`, it is not reset yet.

        An episode that `horizon` cut is `truncated`.
        """


class VectorEnv(ABC):
    """B environments of one kind, a column each, where an ended column starts its next episode within the same step.

    A dead step (`live` False) that is also `truncated` is a column whose environment failed and was recreated: its
    episode is to be forgotten.
    """

    envs: list[Any]  # the environments, or the one that holds all columns
    restarts = 0  # environments recreated after a failure
    present: Array | None = None  # [B] bool, where they answer apart: which have answered; None: always all

    def __init__(
        self,
        config: AlgorithmConfig,
        worker_index: int,
        num_envs: int,
        observation_space: Space,
        action_space: Space,
        first: Any = None,  # the environment of the first column, where each has one
    ) -> None:
        self.name = env_name(config.env)
        self.num_envs = num_envs
        self.observation_space = observation_space if config.observation_space is None else config.observation_space
        self.action_space = action_space if config.action_space is None else config.action_space
        self.observation_layout = Layout.of(self.observation_space)
        self.action_layout = Layout.of(self.action_space)
        self.action_transform = ActionTransform(
            self.action_layout, normalize=config.normalize_actions, clip=config.clip_actions
        )
        self.reward_transform = RewardTransform(config.clip_rewards, atari=is_atari(config, first))
        self.seeds = EpisodeSeeds(column_seeds(config.seed, worker_index, num_envs, in_evaluation=config.in_evaluation))
        self._obs = np.zeros((num_envs, *self.observation_layout.shape), self.observation_layout.dtype)
        self._rewards = np.zeros(num_envs, np.float32)
        self._terminated = np.zeros(num_envs, np.bool_)
        self._truncated = np.zeros(num_envs, np.bool_)
        self.resumed = np.zeros(num_envs, np.bool_)  # the columns that went on with the last `set_state`

    def reset(self, seeds: Sequence[int] | None = None) -> Array:
        """Begin a new episode in every column and return the observations [B, *obs].

        `seeds` gives each column the seed of this episode, from which those of its later episodes follow; without
        it they come from the run's seed, the worker's index and the column.
        """
        if seeds is not None:
            if len(seeds) != self.num_envs:
                raise ValueError(f"{len(seeds)} seeds for {self.num_envs} environments: give one each.")
            self.seeds = EpisodeSeeds(seeds)
        self._reset()
        return self._obs

    @property
    def observations(self) -> Array:
        """[B, *obs] the current ones, as the last step or reset returned them."""
        return self._obs

    @abstractmethod
    def _reset(self) -> None:
        """Fill the observations of all columns with those of new episodes."""

    @abstractmethod
    def step(
        self,
        actions: Array,  # [B, *act], as the policy chose them
    ) -> StepResult:
        """Step every column once; EnvironmentError when an environment raises and may not be recreated."""

    @abstractmethod
    def state(self) -> State:
        """The episodes in progress, to go on with elsewhere."""

    def set_state(self, state: State) -> Array:
        """Go on with the episodes of `state` as far as the columns reach; return the observations [B, *obs].

        What was saved in another form, as with another `horizon` or `env_config`, begins new episodes. `resumed` [B]
        then says which columns go on.
        """
        if state.keys() != self.state().keys():
            logger.warning("episodes in progress were saved by environments of another form: new ones begin.")
            self.resumed = np.zeros(self.num_envs, np.bool_)
            return self.reset()
        self.resumed = self._set_state(state)
        return self._obs

    @abstractmethod
    def _set_state(self, state: State) -> Array:
        """The reverse of `state`; returns the columns that go on from it, [B] bool."""

    def close(self) -> None:
        """Close every environment; what is raised thereby is logged."""
        close_all(self.envs, self.name)

    def _result(self, final_obs: dict[int, Array], live: Array | None = None) -> StepResult:
        rewards = self._rewards if self.reward_transform.identity else self.reward_transform(self._rewards)
        return StepResult(self._obs, rewards, self._terminated, self._truncated, final_obs, live, self._rewards)


def close_all(envs: Sequence[Any], name: str) -> None:
    """Close environments of this `name`; what is raised thereby is logged."""
    for env in envs:
        try:
            env.close()
        except Exception as error:
            logger.warning("%s", describe(name, "close", "at the end", error))


def check_finite(
    name: str,
    values: Array,  # [..., *shape]
    env: str,
) -> None:
    """Raise EnvironmentError naming the first NaN or infinite value among `values`, e.g. a fragment's observations."""
    if not np.issubdtype(values.dtype, np.floating) or np.isfinite(values).all():
        return
    where = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
    raise EnvironmentError(
        f"environment {env!r} returned {name} with {values[where]} at index {list(where)} of {list(values.shape)} "
        "(steps, columns, elements). Reef does not train on it: find the division or overflow in the environment, "
        "or bound the value there."
    )


def warn_of_bounds(
    values: Array,  # [T, B, *obs]
    layout: Layout,
    env: str,
) -> None:
    """Warn of the first of these observations that is outside the bounds of its Box: learning goes on with it."""
    if found := first_outside(layout, values):
        where, value, space = found
        logger.warning(
            "environment %r returned observations with %g at index %s (step, column, element), outside the bounds of "
            "%s: widen the observation_space or clip the observation, if they are to hold.",
            env, value, where, space,
        )  # fmt: skip


def check_choices(
    name: str,
    values: Array,  # [T, B, *obs]
    layout: Layout,
    env: str,
) -> None:
    """Raise EnvironmentError naming the first index among `values` that its Discrete part of the space has not."""
    if found := layout.first_impossible(values):
        where, value, possible = found
        raise EnvironmentError(
            f"environment {env!r} returned {name} with {value} at index {where} (step, column, element), expected "
            f"{possible}: correct it or widen the observation_space."
        )
