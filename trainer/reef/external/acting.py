"""The policy as applications use it: observations checked and filtered, actions chosen, in the forms of the spaces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch

from reef.envs.wrappers import env_actions
from reef.errors import ConfigError
from reef.external.episodes.episode import AgentObservation
from reef.external.episodes.steps import AgentSteps, ChosenAction
from reef.rollout.policies.connectors import TO_ENV
from reef.rollout.policy_runner import PolicyRunner
from reef.spaces import first_outside
from reef.types import Array, RecurrentState

NOT_DONE = np.zeros(1, np.bool_)


class PolicyOfApplications:
    """Acts with a `PolicyRunner`, whose columns are the observations of one call."""

    def __init__(
        self, runner: PolicyRunner, lock: AbstractContextManager[Any], published: Callable[[], tuple[int, int]]
    ) -> None:
        """`lock`: held while the runner is used. `published()`: version of the weights, environment steps so far."""
        self.runner, self.lock, self.published = runner, lock, published
        self.records_inputs = "action_dist_inputs" in runner.policy.acting_extras

    def memory(self, steps: AgentSteps, reward: float) -> RecurrentState:
        """What the policy remembers of an agent's steps, [1, ...] each, if the last one is credited this reward."""
        policy, newest = self.runner.policy, steps.newest
        if newest is None:
            return policy.initial_state(1)
        rewards = self.runner.columns.reward_transform(np.array([reward], np.float32))
        return policy.after_step(newest.memory, newest.action[None], rewards, NOT_DONE)

    def observed(self, observation: Any, *, update: bool = False) -> Array:
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
            if wrong is None and (outside := first_outside(layout, flat)):
                wrong = f"{outside[1]:g} is outside of its bounds"
        except (ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
            wrong = str(error)
        if wrong is not None:
            raise ConfigError(f"the action is no value of {layout.space}: {wrong}.")
        return np.asarray(self.runner.columns.action_transform.inverse(flat), layout.action_dtype)

    def are_possible(
        self,
        actions: Array,  # [N, *action] as a policy chooses them
        inputs: Array,  # [N, D] of their distributions
    ) -> bool:
        """Whether all have a finite log-likelihood; they need not be in the bounds of their Box."""
        logp = self.runner.policy.dist_class(torch.from_numpy(inputs)).logp(torch.from_numpy(actions))
        return bool(torch.isfinite(logp).all())

    def check_mask(self, obs: Array, actions: Array | None = None) -> None:
        """Raise ConfigError where the mask in observations [N, *obs] excludes every action, or one of `actions` [N]."""
        mask = self.runner.policy.action_mask
        if mask is None:
            return
        if mask.excludes_all(obs).any():
            raise ConfigError(f"{mask.key!r} in the observation excludes every action: allow one, or end the episode.")
        if actions is not None and mask.excludes(obs, actions).any():
            raise ConfigError(f"{mask.key!r} in the observation excludes the action: report one that it allows.")

    def act(self, asked: Sequence[AgentObservation]) -> list[tuple[Any, ChosenAction]]:
        """For each observation the value of the action space that the policy chose, and what is recorded.

        That is the application's own action, where it has one. ConfigError where the network finds no finite numbers.
        """
        obs = np.stack([each.obs for each in asked if each.obs is not None])  # all have one
        memory = {name: np.concatenate([each.memory[name] for each in asked]) for name in asked[0].memory}
        with self.lock:
            self.runner.policy.have_weights()
            version, timestep = self.published()
            self.runner.recurrent = memory
            if self.runner.episodic is not None:  # of one application, whose only column this is
                self.runner.episodic.begin(new_episodes=all(each.steps.newest is None for each in asked))
            actions, inputs, _ = self.runner.choose(obs, timestep)
            after = self.runner.recurrent
        if not np.isfinite(inputs).all():
            raise ConfigError(
                "the network's outputs for the observation are NaN or infinite: its values are too large, or the "
                "learner has diverged."
            )
        self._check_own(asked, inputs)
        found = []
        for i, (value, each) in enumerate(zip(self.for_application(actions), asked, strict=True)):
            found_inputs = np.array(inputs[i]) if self.records_inputs else None
            own = {name: values[i : i + 1].copy() for name, values in after.items()}
            action = np.array(actions[i]) if each.own is None else each.own
            found.append((value, ChosenAction(action, found_inputs, version, each.memory, own)))
        return found

    def _check_own(self, asked: Sequence[AgentObservation], inputs: Array) -> None:
        """Raise ConfigError for an action of an application that the policy finds impossible."""
        own = [(each.own, inputs[i]) for i, each in enumerate(asked) if each.own is not None]
        if own and self.records_inputs and not self.are_possible(*map(np.stack, zip(*own, strict=True))):
            raise ConfigError("the action is so far from those of the policy that its likelihood is no finite number.")

    def for_application(self, actions: Array) -> list[Any]:
        """[N, *action] as the policy chose them -> N values of the action space."""
        runner = self.runner
        if runner.to_env is not None:
            actions = runner.to_env(actions)
        return env_actions(actions, runner.policy.action_layout, runner.columns.action_transform)
