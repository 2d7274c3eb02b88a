"""Runs one policy in the columns of a worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from reef.batch import Rollout
from reef.config import AlgorithmConfig
from reef.envs.by_policy import Columns
from reef.envs.seeding import EVALUATION
from reef.envs.vector import StepResult, check_choices, check_finite
from reef.errors import ConfigError
from reef.nn.make import make_policy
from reef.nn.policies import PREV_ACTIONS, PREV_REWARDS
from reef.rollout.acting_device import acting_device
from reef.rollout.exploration import make_exploration
from reef.rollout.filters import make_filter
from reef.rollout.fragment import Fragment
from reef.spaces import flat_observation
from reef.trees import require_like
from reef.types import DEFAULT_POLICY, Array, PolicyId, RecurrentState, State


class PolicyRunner:
    """Acts with one policy in its B columns, and records the results.

    It owns everything of the policy on this worker: observation filter, exploration, random generator, and for each
    column the current observation and recurrent state.
    """

    def __init__(
        self, config: AlgorithmConfig, worker_index: int, columns: Columns, policy_id: PolicyId = DEFAULT_POLICY
    ) -> None:
        """Raises ConfigError if the network cannot be made."""
        self.columns = columns
        self.policy = make_policy(config, columns.observation_space, columns.action_space)
        device = acting_device(config, worker_index, self.policy.multiply_adds * len(columns.envs))
        if device.type != "cpu":
            self.policy.move_to(device)
        if config.torch_compile_worker:
            self.policy.compile_acting(
                backend=config.torch_compile_worker_dynamo_backend, mode=config.torch_compile_worker_dynamo_mode
            )
        self.filter = make_filter(config.observation_filter, self.policy.observation_layout)
        self.update_filter = not config.in_evaluation
        self.explores = config.explore
        self.exploration = make_exploration(config, self.policy.action_layout, worker_index)
        # 1: a random stream other than the environments'.
        apart = (1, EVALUATION) if config.in_evaluation else (1,)
        seed = config.for_policy(policy_id).seed
        self.generator = np.random.default_rng(None if seed is None else [seed, worker_index, *apart])
        # The current fragment, or the last one.
        layout = self.policy.observation_layout
        nothing = np.zeros((len(columns.envs), *layout.shape), layout.dtype)
        self.fragment = Fragment(self.policy, nothing, 0, {})
        # [B, *obs] filtered; None: episodes start with the next fragment.
        self.obs: Array | None = None
        self.recurrent = self.policy.initial_state(len(columns.envs))

    def begin(self, steps: int, first: Array | None = None) -> None:
        """Allocate `steps` steps; with the `first` observations [B, *obs] new episodes start in all columns."""
        if first is not None:
            self.obs = self._filtered(first)
            self.recurrent = self.policy.initial_state(len(first))
        assert self.obs is not None, "episodes have begun"
        self.fragment = Fragment(self.policy, self.obs, steps, self.recurrent)
        self.obs = None

    def go_on(self) -> None:
        """Let the next fragment continue where this full one ends."""
        self.obs = self.fragment.obs[-1]

    def act(self, t: int, timestep: int) -> Array:
        """The actions [B, *action] of step `t`, recorded; `timestep` drives exploration schedules."""
        fragment, explore = self.fragment, self.explores
        generator = self.generator if explore else None
        distribution, self.recurrent = self.policy.act(fragment.obs[t], self.recurrent, generator)
        actions = self.exploration.get_exploration_action(distribution, timestep, explore, self.generator)
        fragment.actions[t] = actions
        if fragment.dist_inputs is not None:
            fragment.dist_inputs[t] = distribution.inputs
        return actions

    def record(self, t: int, result: StepResult, active: Array | None) -> None:
        """Record the results of step `t`; it is valid in the environments where `active` [E] is True, or in all."""
        fragment = self.fragment
        if active is not None:
            fragment.mask[t] = active[self.columns.envs]
        fragment.write(t, result, self._filtered(result.obs))
        for column, obs in result.final_obs.items():
            fragment.finals.append((t, column, self.filter(obs[None], update=False)[0]))
        if self.recurrent:
            done = result.terminated | result.truncated
            if result.live is not None:
                done |= ~result.live  # an agent that joins later starts with an empty state
            self.recurrent = self.policy.after_step(self.recurrent, fragment.actions[t], result.rewards, done)

    def _filtered(self, obs: Array) -> Array:
        """Filter observations [B, *obs]; those of present agents are added to the statistics."""
        there = self.columns.present
        if there is None or not self.update_filter or there.all():
            return self.filter(obs, update=self.update_filter)
        if there.any():
            self.filter(obs[there], update=True)
        return self.filter(obs, update=False)

    def check(self, env: str) -> None:
        """Raise EnvironmentError for the first invalid value in the fragment: NaN, infinity, or a wrong index."""
        self._check_observations("observations", self.fragment.obs[: self.fragment.observed], env)
        check_finite("rewards", self.fragment.rewards[: max(self.fragment.observed - 1, 0)], env)

    def check_finals(self, rollout: Rollout, env: str) -> None:
        """Raise EnvironmentError for the first invalid value in the last observations of episodes."""
        if self.fragment.finals:  # otherwise the successors are the observations themselves
            self._check_observations("last observations", rollout.next_obs, env)

    def _check_observations(self, name: str, obs: Array, env: str) -> None:
        check_finite(name, obs, env)
        check_choices(name, obs, self.policy.observation_layout, env)

    def compute_action(
        self,
        observation: Any,  # a value of the environment's observation space
        state: Sequence[Array] | None,  # from the call before; None: an episode starts
        timestep: int,
        explore: bool,
        prev_action: Any = None,
        prev_reward: float | None = None,
    ) -> tuple[Any, list[Array], dict[str, Array]]:
        """The action for one observation outside of any fragment, the next recurrent state, and extras.

        The observation is filtered and the action unsquashed as in training. ConfigError for an invalid observation or
        a state of another policy.
        """
        policy = self.policy
        recurrent = self._given_state(state, prev_action, prev_reward)
        obs = self.filter(flat_observation(policy.observation_layout, observation)[None], update=False)
        distribution, recurrent = policy.act(np.array(obs), recurrent, self.generator if explore else None)
        actions = self.exploration.get_exploration_action(distribution, timestep, explore, self.generator)
        recurrent = policy.after_step(recurrent, actions, np.zeros(1, np.float32), np.zeros(1, np.bool_))
        action = policy.action_layout.unflatten(self.columns.action_transform(actions)[0])
        if policy.action_layout.shape == ():
            action = action.item() if isinstance(action, np.ndarray | np.generic) else action
        after = [recurrent[name][0] for name in policy.initial_state(1)]
        return action, after, {"action_dist_inputs": distribution.inputs[0]}

    def _given_state(
        self, state: Sequence[Array] | None, prev_action: Any, prev_reward: float | None
    ) -> RecurrentState:
        """The recurrent state [1, ...] of one column from the arguments of `compute_action`."""
        recurrent = self.policy.initial_state(1)
        if state is not None:
            shapes, expected = [np.shape(each) for each in state], [values.shape[1:] for values in recurrent.values()]
            if shapes != expected:
                raise ConfigError(
                    f"state has arrays of the shapes {shapes}, expected {expected}: give what the call before returned."
                )
            recurrent = {
                name: np.array(each, own.dtype)[None]
                for (name, own), each in zip(recurrent.items(), state, strict=True)
            }
        if prev_action is not None and PREV_ACTIONS in recurrent:
            taken = self.policy.action_layout.flatten(prev_action)
            recurrent[PREV_ACTIONS][0, 0] = self.columns.action_transform.inverse(taken)
        if prev_reward is not None and PREV_REWARDS in recurrent:
            recurrent[PREV_REWARDS][0, 0] = self.columns.reward_transform(np.array([prev_reward], np.float32))[0]
        return recurrent

    def state(self) -> State:
        """Everything except the weights and the filter."""
        return {
            "generator": self.generator.bit_generator.state,
            "exploration": self.exploration.state(),
            "obs": None if self.obs is None else self.obs.copy(),
            "recurrent": {name: values.copy() for name, values in self.recurrent.items()},
        }

    def set_state(self, state: State) -> None:
        """Restore what `state` returned, except the columns, which start new episodes unless `resume` follows."""
        self.generator.bit_generator.state = state["generator"]
        self.exploration.set_state(state["exploration"])
        self.obs = None

    def resume(self, state: State, first: Array, resumed: Array) -> None:
        """Continue from `state` in the columns where `resumed` [B] is True; the others start with `first` [B, *obs]."""
        obs = self.filter(first, update=False)
        if state["obs"] is None:
            return
        require_like(state["obs"][:0], obs[:0], "obs")
        self.obs = obs.copy()
        self.recurrent = self.policy.initial_state(len(obs))
        going_on = np.flatnonzero(resumed)
        for mine, stored in ((self.obs, state["obs"]), *_pairs(self.recurrent, state["recurrent"])):
            mine[going_on] = stored[going_on]  # the observations, already filtered at that time


def _pairs(own: RecurrentState, stored: RecurrentState) -> list[tuple[Array, Array]]:
    require_like({name: values[:0] for name, values in stored.items()}, {n: v[:0] for n, v in own.items()}, "recurrent")
    return [(own[name], stored[name]) for name in own]
