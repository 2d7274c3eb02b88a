"""The policy as applications use it: observations checked and filtered, actions chosen, in the forms of the spaces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy

from reef.config import AlgorithmConfig
from reef.config.applications import as_sent
from reef.envs.wrappers import env_actions
from reef.errors import ConfigError, ExternalEpisodeError
from reef.external.episodes.episode import Acted, ExternalEpisode
from reef.external.wire import Specification, Step
from reef.rollout.policies.connectors import TO_ENV
from reef.rollout.policy_runner import PolicyRunner
from reef.types import Array, RecurrentState

NOT_DONE = np.zeros(1, np.bool_)


class Asked(NamedTuple):
    """What an action is asked for."""

    # [*obs] as the network takes it
    obs: Array
    # [1, ...] each: what the policy remembers; empty without a memory
    memory: RecurrentState
    # [*action] that the application chose by itself, as a policy chooses it; None: the policy is to act
    own: Array | None


class PolicyOfApplications:
    """Acts with a `PolicyRunner`, whose columns are the observations of one call."""

    def __init__(
        self,
        config: AlgorithmConfig,
        runner: PolicyRunner,
        lock: AbstractContextManager[Any],
        published: Callable[[], tuple[int, int]],
        fragment_length: int,
    ) -> None:
        """`lock`: held while the runner is used. `published()`: version of the weights, environment steps so far.

        `fragment_length`: steps of an episode after which it is cut, or without a critic refused.
        """
        self.config, self.runner, self.lock, self.published = config, runner, lock, published
        self.fragment_length = fragment_length
        # What follows after a cut is estimated by a critic.
        self.may_cut = bool(getattr(config, "use_critic", True))
        # Whether an episode is learned from once it is over, if it is not too long.
        self.whole = config.batch_mode == "complete_episodes" or not self.may_cut
        self.records_inputs = "action_dist_inputs" in runner.policy.acting_extras

    def check_length(self, episode: ExternalEpisode) -> None:
        """Raise ExternalEpisodeError for an episode that is too long to go on: it must be whole."""
        if not self.may_cut and len(episode.rewards) >= self.fragment_length:
            raise ExternalEpisodeError(
                f"episode {episode.episode_id!r} has {self.fragment_length} steps, which is the most: use_critic=False "
                "learns from whole episodes. End it, raise max_request_bytes for a client with 'local', or use a "
                "critic."
            )

    def read(self, step: Step, episode: ExternalEpisode) -> Asked:
        """A step of an episode as the policy takes it; ConfigError for a wrong value."""
        chosen = None if step.action is None else self.chosen(step.action)
        obs = self.observed(step.obs)
        self.check_mask(obs[None], None if chosen is None else chosen[None])
        return Asked(obs, self._memory(episode, step.reward), chosen)

    def _memory(self, episode: ExternalEpisode, reward: float) -> RecurrentState:
        """What the policy remembers of an episode, [1, ...] each, if its last action is credited this reward too."""
        policy, newest = self.runner.policy, episode.newest
        if newest is None:
            return policy.initial_state(1)
        credited = np.array([episode.newest_reward + reward], np.float32)
        rewards = self.runner.columns.reward_transform(credited)
        return policy.after_step(newest.memory, newest.action[None], rewards, NOT_DONE)

    def observed(self, observation: Any, *, update: bool = True) -> Array:
        """A value of the observation space -> [*obs] as the network takes it; ConfigError for another value.

        `update`: the filter learns from it.
        """
        runner = self.runner
        source = runner.policy if runner.to_policy is None else runner.to_policy
        flat = source.preprocessor.flatten(observation)
        with self.lock:
            return np.array(runner.filtered(flat[None], update=update)[0])

    def chosen(self, action: Any) -> Array:
        """A value of the action space -> [*action] as a policy chooses it; ConfigError for another value."""
        layout = self.runner.policy.action_layout
        if self.runner.to_env is not None:
            raise ConfigError(
                f"log_action: what the policy would have chosen cannot be known with {TO_ENV}. Leave one of them out."
            )
        try:
            flat = np.asarray(layout.flatten(action))
            wrong = None if flat.shape == layout.shape and np.isfinite(flat).all() else f"got {action!r}"
            if wrong is None and (impossible := layout.first_impossible(flat)):
                wrong = f"got {impossible[1]}, expected {impossible[2]}"
        except (ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
            wrong = str(error)
        if wrong is not None:
            raise ConfigError(f"the action is no value of {layout.space}: {wrong}.")
        return np.asarray(self.runner.columns.action_transform.inverse(flat), layout.action_dtype)

    def check_mask(self, obs: Array, actions: Array | None = None) -> None:
        """Raise ConfigError where the mask in observations [N, *obs] excludes every action, or one of `actions` [N]."""
        mask = self.runner.policy.action_mask
        if mask is None:
            return
        if mask.excludes_all(obs).any():
            raise ConfigError(f"{mask.key!r} in the observation excludes every action: allow one, or end the episode.")
        if actions is not None and mask.excludes(obs, actions).any():
            raise ConfigError(f"{mask.key!r} in the observation excludes the action: report one that it allows.")

    def act(self, asked: Sequence[Asked]) -> list[tuple[Any, Acted]]:
        """For each observation the value of the action space that the policy chose, and what is recorded.

        That is the application's own action, where it has one.
        """
        obs = np.stack([each.obs for each in asked])
        memory = {name: np.concatenate([each.memory[name] for each in asked]) for name in asked[0].memory}
        with self.lock:
            version, timestep = self.published()
            self.runner.recurrent = memory
            actions, inputs = self.runner.choose(obs, timestep)
            after = self.runner.recurrent
        found = []
        for i, (value, each) in enumerate(zip(self.for_application(actions), asked, strict=True)):
            found_inputs = np.array(inputs[i]) if self.records_inputs else None
            own = {name: values[i : i + 1].copy() for name, values in after.items()}
            action = np.array(actions[i]) if each.own is None else each.own
            found.append((value, Acted(action, found_inputs, version, each.memory, own)))
        return found

    def for_application(self, actions: Array) -> list[Any]:
        """[N, *action] as the policy chose them -> N values of the action space."""
        runner = self.runner
        if runner.to_env is not None:
            actions = runner.to_env(actions)
        return env_actions(actions, runner.policy.action_layout, runner.columns.action_transform)

    def specification(self, max_request_bytes: int) -> Specification:
        """What a client needs to act by itself; ConfigError where it cannot."""
        if self.runner.filter is not None:
            raise ConfigError(
                f"observation_filter={self.config.observation_filter!r}: its statistics are in the server, so that a "
                "client cannot act by itself. Use inference_mode='remote', or set it to 'NoFilter'."
            )
        return Specification(
            algorithm=self.config.algorithm_class,
            settings=as_sent(self.config),
            fragment_length=self.fragment_length,
            max_request_bytes=max_request_bytes,
        )

    def weights(self) -> tuple[bytes, int, int]:
        """The parameters as a safetensors file, their version, and environment steps so far."""
        with self.lock:
            return safetensors.numpy.save(self.runner.policy.get_weights()), *self.published()
