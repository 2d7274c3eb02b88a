"""The arrays that a worker writes while it steps, and the rollout made of them."""

from __future__ import annotations

import numpy as np

from reef.batch import Rollout
from reef.envs.vector import StepResult
from reef.nn.policies import Policy
from reef.types import Array, RecurrentState


class Fragment:
    """Preallocated arrays [T, B, ...] for one policy; `obs` has one step more, for the last successor."""

    def __init__(
        self,
        policy: Policy,
        first: Array,  # [B, *obs] the first observations, filtered
        steps: int,
        state_in: RecurrentState,
    ) -> None:
        """Room for `steps` steps; `grow` makes more."""
        obs, action, columns = policy.observation_layout, policy.action_layout, len(first)
        self.obs = np.empty((steps + 1, columns, *obs.shape), obs.dtype)
        self.actions = np.empty((steps, columns, *action.shape), action.action_dtype)
        self.rewards = np.empty((steps, columns), np.float32)
        self.terminated = np.empty((steps, columns), np.bool_)
        self.truncated = np.empty((steps, columns), np.bool_)
        self.mask = np.ones((steps, columns), np.bool_)
        self.dist_inputs: Array | None = None
        if "action_dist_inputs" in policy.acting_extras:
            self.dist_inputs = np.empty((steps, columns, policy.dist_class.num_inputs), np.float32)
        self.finals: list[tuple[int, int, Array]] = []  # (step, column, true successor)
        self.state_in = {name: values.copy() for name, values in state_in.items()}
        self.obs[0] = first
        self.observed = 1  # steps whose observations are written

    @property
    def capacity(self) -> int:
        """Steps that fit."""
        return len(self.rewards)

    def grow(self) -> None:
        """Double the room, keeping what is written."""
        room = self.capacity
        for name in ("obs", "actions", "rewards", "terminated", "truncated", "mask", "dist_inputs"):
            array = getattr(self, name)
            if array is not None:
                more = np.ones if name == "mask" else np.empty
                setattr(self, name, np.concatenate([array, more((room, *array.shape[1:]), array.dtype)]))

    def write(self, t: int, result: StepResult, obs: Array) -> None:
        """Record what the environments answered to the actions of step `t`; `obs` [B, *obs] are filtered."""
        self.obs[t + 1] = obs
        self.observed = t + 2
        self.rewards[t] = result.rewards
        self.terminated[t] = result.terminated
        self.truncated[t] = result.truncated
        if result.live is not None:
            self.mask[t] &= result.live

    def rollout(self, steps: int, extras: dict[str, Array], policy_version: int) -> Rollout:
        """The first `steps` steps."""
        next_obs = self.obs[1 : steps + 1]
        if self.finals:
            next_obs = next_obs.copy()
            for t, column, obs in self.finals:
                next_obs[t, column] = obs
        return Rollout(
            obs=self.obs[:steps],
            actions=self.actions[:steps],
            rewards=self.rewards[:steps],
            next_obs=next_obs,
            terminated=self.terminated[:steps],
            truncated=self.truncated[:steps],
            mask=self.mask[:steps],
            extras=extras,
            state_in=self.state_in,
            policy_version=policy_version,
        )
