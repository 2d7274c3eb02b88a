"""A policy of Reef as the target of an estimate."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from gymnasium import spaces

from reef.errors import ConfigError
from reef.nn.distributions import Squashed
from reef.nn.dueling import QPolicy
from reef.nn.policies import Policy
from reef.types import Array

ROWS = 4096  # that the network reads at a time


class EvaluatedPolicy:
    """Acts by its distribution, as in training; a policy of Q-values takes the best action with certainty."""

    def __init__(self, policy: Policy, filtered: Callable[[Array], Array]) -> None:
        """`filtered`: [N, *obs] as recorded -> as the policy reads them.

        Raises:
            ConfigError: it acts without a distribution, or has a memory.
        """
        self._policy, self._filtered = policy, filtered
        if policy.initial_state(0):
            raise ConfigError(
                "off_policy_estimation_methods: not available yet for a policy with a memory. Evaluate it by playing."
            )
        if any(part.make is Squashed for part in policy.dist_class.parts):
            raise ConfigError(
                f"off_policy_estimation_methods: {policy.config.label} learns a single action for each observation, "
                "and its real numbers are never exactly the recorded ones. Evaluate it by playing, or train SAC."
            )

    def logp(self, obs: Array, actions: Array) -> Array:
        """[N, *obs] and [N, *action] -> [N]."""
        found = []
        for inputs, rows in self._inputs(obs):
            taken = actions[rows]
            if isinstance(self._policy, QPolicy):
                found.append(np.where(inputs.argmax(-1) == taken, 0.0, -np.inf))
            else:
                made = self._policy.dist_class(torch.from_numpy(inputs))
                found.append(made.logp(torch.from_numpy(taken)).numpy().astype(np.float64))
        return np.concatenate(found)

    def probabilities(self, obs: Array) -> Array:
        """[N, *obs] -> [N, A] of Discrete actions; ConfigError where they are not."""
        found = []
        for inputs, _ in self._inputs(obs):
            if isinstance(self._policy, QPolicy):
                found.append(np.eye(inputs.shape[-1])[inputs.argmax(-1)])
            else:
                found.append(self._chances(inputs))
        return np.concatenate(found)

    def _chances(self, inputs: Array) -> Array:
        """The inputs of distributions [N, D] -> [N, A], whatever distribution of a Discrete space it is."""
        space = self._policy.action_layout.space
        if not isinstance(space, spaces.Discrete):
            raise ConfigError(f"probabilities: {space} is not Discrete. Ask the policy for logp(obs, actions).")
        made = self._policy.dist_class(torch.from_numpy(inputs))
        each = [torch.full((len(inputs),), action) for action in range(int(space.n))]
        chances: Array = torch.stack([made.logp(actions) for actions in each], -1).exp().numpy().astype(np.float64)
        return chances

    def _inputs(self, obs: Array) -> list[tuple[Array, slice]]:
        """The inputs of the distributions [ROWS, D], and the rows that they are of."""
        rows = [slice(start, start + ROWS) for start in range(0, len(obs), ROWS)]
        return [(self._policy.act(self._filtered(obs[part]), {})[0].inputs, part) for part in rows]
