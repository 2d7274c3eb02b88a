"""What a person asks of an algorithm between two iterations: its policies, their actions and weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from reef.config import AlgorithmConfig
from reef.errors import ConfigError
from reef.nn.policies import PREV_ACTIONS, PREV_REWARDS, Policy
from reef.nn.weight_files import read_weights
from reef.rollout.exploration import ParameterNoise
from reef.rollout.policy_runner import PolicyRunner
from reef.rollout.seams import Workers
from reef.spaces import Layout
from reef.types import DEFAULT_POLICY, Array, PolicyId, RecurrentState


class Inference(ABC):
    """Acts with the policies of this process and changes their weights.

    Weights that were set in a policy by hand are taken over by the learners with the next iteration or publication.
    """

    config: AlgorithmConfig
    workers: Workers

    @property
    @abstractmethod
    def timestep(self) -> int:
        """Environment steps sampled so far."""

    @abstractmethod
    def publish_weights(self, *, is_new: bool = True) -> None:
        """Give all workers the learners' weights; `is_new`: they are another version."""

    def get_policy(self, policy_id: PolicyId = DEFAULT_POLICY) -> Policy:
        """The local worker's copy of a policy; KeyError when there is none of that name."""
        return self.workers.local_worker().get_policy(policy_id)

    def compute_single_action(
        self,
        observation: Any,  # a value of the environment's observation space
        state: Sequence[Array] | None = None,  # as the call before returned it; None: an episode begins
        *,
        prev_action: Any = None,  # a value of the action space
        prev_reward: float | None = None,
        explore: bool | None = None,
        policy_id: PolicyId = DEFAULT_POLICY,
        full_fetch: bool = False,
    ) -> Any:  # a value of the environment's action space
        """The action for one observation, filtered and unsquashed as in training.

        With `state` or `full_fetch` returns (action, state, extras): give a recurrent policy the state that it returned
        for the step before. It holds the action that was chosen then; `prev_reward`, and `prev_action` where another
        was taken, are written into it for a policy that reads them. `explore` None means the setting of that name.
        Raises ConfigError for what is no observation, no state or no action.
        """
        policy, runner = self.get_policy(policy_id), self.workers.local_worker().runners[policy_id]
        explore = self.config.explore if explore is None else explore
        recurrent = _given_state(runner, state, prev_action, prev_reward)
        obs = runner.filtered(_flat_observation(policy.observation_layout, observation)[None])
        noise = runner.exploration if explore and isinstance(runner.exploration, ParameterNoise) else None
        if noise is not None:
            distribution, recurrent = noise.act_once(policy, np.array(obs), recurrent, runner.generator)
        else:
            distribution, recurrent = policy.act(np.array(obs), recurrent, runner.generator if explore else None)
        actions = runner.exploration.choose(distribution, self.timestep, explore, runner.generator)
        action = policy.action_layout.unflatten(runner.columns.action_transform(actions)[0])
        if policy.action_layout.shape == ():
            action = action.item() if isinstance(action, np.ndarray | np.generic) else action
        if state is None and not full_fetch:
            return action
        recurrent = policy.after_step(recurrent, actions, np.zeros(1, np.float32), np.zeros(1, np.bool_))
        after = [recurrent[name][0] for name in policy.initial_state(1)]
        return action, after, {"action_dist_inputs": distribution.inputs[0]}

    compute_action = compute_single_action

    def get_weights(self) -> dict[PolicyId, dict[str, Array]]:
        """Parameters by policy and name."""
        return {name: policy.get_weights() for name, policy in self.workers.local_worker().policy_map.items()}

    def set_weights(self, weights: dict[PolicyId, dict[str, Array]]) -> None:
        """Overwrite parameters by policy and name, in the learners and all workers; ConfigError where they do not fit.

        The optimizer goes on as it was. Target networks become copies of the new weights.
        """
        for policy_id, named in weights.items():
            self.get_policy(policy_id).set_weights(named)
        self.publish_weights()

    def import_model(
        self, path: str | Path, *, policy_id: PolicyId = DEFAULT_POLICY, names: Mapping[str, str] | None = None
    ) -> None:
        """As `set_weights`, from a safetensors file or a torch `state_dict`, of which no code is run.

        `names` translates names of the file into those of `get_weights()`. Raises CheckpointError for a file that
        cannot be used, ConfigError for weights that do not fit; the algorithm is then as it was.
        """
        self.get_policy(policy_id).import_weights(read_weights(path), names)
        self.publish_weights()


def _flat_observation(layout: Layout, observation: Any) -> Array:
    """An observation as the network takes it; ConfigError says what is wrong with it."""
    try:
        flat = layout.flatten(observation)
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise ConfigError(
            f"the observation is no value of {layout.space} ({error}). It is the first that reset() and step() return."
        ) from error
    if flat.shape != layout.shape:
        raise ConfigError(f"the observation has shape {flat.shape}, expected {layout.shape} of {layout.space}")
    if not np.isfinite(flat).all():
        raise ConfigError("the observation has values that are NaN or infinite, of which no network makes an action.")
    if found := layout.first_impossible(flat):
        where, value, possible = found
        raise ConfigError(f"the observation {observation!r} has {value} at index {where}, expected {possible}.")
    return flat


def _given_state(
    runner: PolicyRunner, state: Sequence[Array] | None, prev_action: Any, prev_reward: float | None
) -> RecurrentState:
    """The recurrent state [1, ...] of one column from the arguments of `compute_single_action`."""
    recurrent = runner.policy.initial_state(1)
    if state is not None:
        shapes, expected = [np.shape(each) for each in state], [values.shape[1:] for values in recurrent.values()]
        if shapes != expected:
            raise ConfigError(
                f"state has arrays of the shapes {shapes}, expected {expected}: give what the call before returned."
            )
        recurrent = {
            name: np.array(each, own.dtype)[None] for (name, own), each in zip(recurrent.items(), state, strict=True)
        }
    if prev_action is not None and PREV_ACTIONS in recurrent:
        taken = runner.policy.action_layout.flatten(prev_action)
        recurrent[PREV_ACTIONS][0, 0] = runner.columns.action_transform.inverse(taken)
    if prev_reward is not None and PREV_REWARDS in recurrent:
        recurrent[PREV_REWARDS][0, 0] = runner.columns.reward_transform(np.array([prev_reward], np.float32))[0]
    return recurrent
