"""The arrays that a worker fills while it steps, and the rollout made from them."""

from __future__ import annotations

import numpy as np
import torch

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
        """Allocate `steps` steps; `grow` allocates more."""
        obs, action, columns = policy.observation_layout, policy.action_layout, len(first)
        self.obs = np.empty((steps + 1, columns, *obs.shape), obs.dtype)
        self.actions = np.empty((steps, columns, *action.shape), action.action_dtype)
        self.rewards = np.empty((steps, columns), np.float32)
        self.terminated = np.empty((steps, columns), np.bool_)
        self.truncated = np.empty((steps, columns), np.bool_)
        self.mask = np.ones((steps, columns), np.bool_)
        self.dist_class, self.dist_inputs = policy.dist_class, None
        if "action_dist_inputs" in policy.acting_extras:
            self.dist_inputs = np.empty((steps, columns, policy.dist_class.num_inputs), np.float32)
        self.finals: list[tuple[int, int, Array]] = []  # (step, column, true successor)
        self.state_in = {name: values.copy() for name, values in state_in.items()}
        self.obs[0] = first
        self.observed = 1  # number of steps whose observations are written

    @property
    def capacity(self) -> int:
        """Number of allocated steps."""
        return len(self.rewards)

    def grow(self) -> None:
        """Double the capacity, keeping the written steps."""
        room = self.capacity
        for name in ("obs", "actions", "rewards", "terminated", "truncated", "mask", "dist_inputs"):
            array = getattr(self, name)
            if array is not None:
                more = np.ones if name == "mask" else np.empty
                setattr(self, name, np.concatenate([array, more((room, *array.shape[1:]), array.dtype)]))

    def write(self, t: int, result: StepResult, obs: Array) -> None:
        """Record the environments' results for the actions of step `t`; `obs` [B, *obs] are filtered."""
        self.obs[t + 1] = obs
        self.observed = t + 2
        self.rewards[t] = result.rewards
        self.terminated[t] = result.terminated
        self.truncated[t] = result.truncated
        if result.live is not None:
            self.mask[t] &= result.live

    def rollout(self, steps: int, policy_version: int) -> Rollout:
        """The first `steps` steps as a rollout by this policy version."""
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
            extras=self._extras(steps),
            state_in=self.state_in,
            policy_version=policy_version,
        )

    def _extras(self, steps: int) -> dict[str, Array]:
        """What the policy returned when it acted; log-likelihoods are computed for all steps at once."""
        if self.dist_inputs is None:
            return {}
        inputs, actions = self.dist_inputs[:steps], self.actions[:steps]
        distribution = self.dist_class(torch.from_numpy(inputs.reshape(-1, inputs.shape[-1])))
        logp = distribution.logp(torch.from_numpy(actions.reshape(-1, *actions.shape[2:])))
        return {"action_dist_inputs": inputs, "action_logp": logp.numpy().reshape(inputs.shape[:2])}
