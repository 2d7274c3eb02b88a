"""A policy of a checkpoint, as those use it who do not train."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from reef.errors import ConfigError
from reef.external.listening.together import together_or_alone
from reef.nn.queries.policy import PREV_ACTIONS, PREV_REWARDS
from reef.rollout.exploration.on_request import OnRequest
from reef.run.build import load_policies
from reef.spaces import Space
from reef.types import Array, PolicyId


@dataclass(frozen=True, slots=True)
class ActionRequest:
    """N observations for which actions are asked."""

    rows: Array  # [N, *obs] as the environment gives them
    state: list[Array]  # [N, ...] each; empty for a policy without a memory
    rewards: list[float]  # N, of the actions before; 0 for a policy that reads none

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class ActionResponse:
    """The answer to `ActionRequest`."""

    actions: list[Any]  # N values of the action space
    states: list[list[Array]]  # N states after the action
    dist_inputs: Array  # [N, D] of the distributions that actions were chosen by


class FinishedPolicy:
    """Acts as `reef evaluate` does: by filter, connectors, the checkpoint's `evaluation_config`, and bounds."""

    def __init__(self, checkpoint: str, policy_id: PolicyId | None = None, explore: bool | None = None) -> None:
        """`policy_id`: None is the only policy; `explore`: None is what `evaluation_config` says, else False.

        Raises:
            CheckpointError: the checkpoint cannot be read, or has no such policy.
            ConfigError: it has several policies, and none is named.
        """
        found = load_policies(checkpoint, None if policy_id is None else [policy_id], in_evaluation=True)
        if len(found) > 1:
            raise ConfigError(f"{checkpoint} has the policies {', '.join(sorted(found))}. Give one with --policy ID.")
        ((self.policy_id, self.policy),) = found.items()
        assert isinstance(self.policy.chooser, OnRequest), "it was loaded"
        self.chooser = self.policy.chooser
        self.runner = self.chooser.runner
        self.explore = self.runner.explores if explore is None else explore
        self.state_names = tuple(self.policy.initial_state(1))

    @property
    def observation_space(self) -> Space:
        """Of the environment, before a connector."""
        return self.chooser.preprocessor.layout.space

    @property
    def action_space(self) -> Space:
        """Of the environment."""
        return self.runner.columns.action_space

    def read(
        self,
        observations: Sequence[Any],  # N values of the observation space
        states: Sequence[Any] | None = None,  # N, each as the answer before had it; None: an episode begins
        rewards: Sequence[float] | None = None,  # N, of the actions before
    ) -> ActionRequest:
        """What a client asks; ConfigError for the first value that is wrong."""
        self._check_beside(len(observations), states, rewards)
        rows, each_state = [], []
        for index, observation in enumerate(observations):
            try:
                with np.errstate(over="ignore"):  # infinity is refused
                    rows.append(self.chooser.preprocessor.flatten(observation))
                each_state.append(self._read_state(None if states is None else states[index]))
            except ConfigError as error:
                if len(observations) == 1:
                    raise
                raise ConfigError(f"observation {index} of {len(observations)}: {error}") from error
        state = [np.concatenate(part) for part in zip(*each_state, strict=True)]
        return ActionRequest(np.stack(rows), state, [0.0] * len(rows) if rewards is None else list(rewards))

    def _check_beside(self, count: int, states: Sequence[Any] | None, rewards: Sequence[float] | None) -> None:
        """Raise ConfigError for states or rewards that do not belong to `count` observations of this policy."""
        if states is not None and not self.state_names:
            raise ConfigError("a state was sent, but this policy has no memory. Leave it out.")
        if rewards is not None and PREV_REWARDS not in self.state_names:
            raise ConfigError("a reward was sent, but this policy reads none. Leave it out.")
        if rewards is not None and states is None:
            raise ConfigError("a reward was sent without a state: at the beginning of an episode there is none.")
        if rewards is not None and not np.isfinite(rewards).all():
            raise ConfigError("a reward is NaN or infinite.")
        for name, given in (("states", states), ("rewards", rewards)):
            if given is not None and len(given) != count:
                raise ConfigError(f"{len(given)} {name} for {count} observations: give one for each.")
        for state, reward in zip(states or (), rewards or (), strict=False):
            if state is None and reward:
                raise ConfigError(f"a reward of {reward:g} without a state: where an episode begins it is 0.")

    def _read_state(self, state: Any) -> list[Array]:
        found = self.policy.one_state(state)
        named = dict(zip(self.state_names, found, strict=True))
        if not all(np.isfinite(each).all() for each in found):
            raise ConfigError("the state has values that are NaN or infinite: send what the answer before had.")
        if PREV_ACTIONS in named and (wrong := self.policy.action_layout.first_impossible(named[PREV_ACTIONS])):
            raise ConfigError(f"the state holds the action {wrong[1]}, expected {wrong[2]}.")
        return found

    def act(self, asked: Sequence[ActionRequest]) -> list[ActionResponse | Exception]:
        """The answer to each request, of one forward pass; where that fails each is tried by itself.

        A request with an observation that has no action, such as one of too large values, is refused alone.
        """
        return together_or_alone(self._act_together, asked)

    def _act_together(self, asked: Sequence[ActionRequest]) -> list[ActionResponse | Exception]:
        obs = self.runner.filtered(np.concatenate([each.rows for each in asked]))
        if len(asked) > 1 and self._refusal(obs) is not None:
            parts = np.split(obs, np.cumsum([len(each) for each in asked])[:-1])
            refusals = [self._refusal(part) for part in parts]
            possible = [(each, part) for each, part, no in zip(asked, parts, refusals, strict=True) if no is None]
            answers = iter(self._acted(*zip(*possible, strict=True)) if possible else [])
            return [next(answers) if refusal is None else refusal for refusal in refusals]
        return self._acted(asked, [obs])

    def _refusal(self, obs: Array) -> ConfigError | None:
        """Why the policy does not act for one of these filtered observations [N, *obs], if it does not."""
        try:
            self.policy.require_choices(self.policy.preprocessor.observations(obs))
        except ConfigError as error:
            return error
        return None

    def _acted(self, asked: Sequence[ActionRequest], obs: Sequence[Array]) -> list[ActionResponse | Exception]:
        """The answers to requests, by their filtered observations."""
        state = [np.concatenate(part) for part in zip(*(each.state for each in asked), strict=True)]
        rewards = [reward for each in asked for reward in each.rewards]
        actions, after, extras = self.policy.compute_actions(
            np.concatenate(obs), state, prev_reward_batch=rewards, explore=self.explore
        )
        values = [self.policy.plain(action) for action in actions]
        states = [[part[row] for part in after] for row in range(len(values))]
        found: list[ActionResponse | Exception] = []
        end = 0
        for each in asked:
            begin, end = end, end + len(each)
            inputs = extras["action_dist_inputs"][begin:end]
            if np.isfinite(inputs).all():
                found.append(ActionResponse(values[begin:end], states[begin:end], inputs))
            else:
                found.append(_too_large(inputs))
        return found


def _too_large(inputs: Array) -> ConfigError:
    """Why there is no action for a request, of whose inputs of distributions [N, D] some are no numbers."""
    first = int(np.flatnonzero(~np.isfinite(inputs).all(1))[0])
    where = f" {first} of {len(inputs)}" if len(inputs) > 1 else ""
    return ConfigError(
        f"the network's outputs for the observation{where} are NaN or infinite: its values are too large."
    )
