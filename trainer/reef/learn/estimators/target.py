"""A policy of Reef as the target of an estimate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

import numpy as np
import torch
from gymnasium import spaces

from reef.errors import ConfigError
from reef.learn.estimators.logged import LoggedSteps
from reef.nn.distributions import Squashed
from reef.nn.dueling import QPolicy
from reef.nn.policies import Policy
from reef.types import Array

ROWS = 4096  # steps, or episodes with a memory, that the network reads at a time


class EvaluatedPolicy:
    """Acts by its distribution, as in training; a policy of Q-values takes the best action with certainty.

    One with a memory acts in each recorded episode from its first step on, with an empty memory before it.
    """

    def __init__(self, policy: Policy, filtered: Callable[[Array], Array], clipped: Callable[[Array], Array]) -> None:
        """`filtered`: [N, *obs] as recorded -> as the policy reads them; `clipped`: rewards [N], the same.

        Raises:
            ConfigError: it acts without a distribution.
        """
        self._policy, self._filtered, self._clipped = policy, filtered, clipped
        if any(part.make is Squashed for part in policy.dist_class.parts):
            raise ConfigError(
                f"off_policy_estimation_methods: {policy.config.label} learns a single action for each observation, "
                "and its real numbers are never exactly the recorded ones. Evaluate it by playing, or train SAC."
            )

    def logp(self, steps: LoggedSteps) -> Array:
        """[N] of the recorded actions."""
        inputs = self._inputs(steps, after=False)
        if isinstance(self._policy, QPolicy):
            return np.where(inputs.argmax(-1) == steps.actions, 0.0, -np.inf)
        logp = self._policy.dist_class(torch.from_numpy(inputs)).logp(torch.from_numpy(steps.actions))
        return logp.numpy().astype(np.float64)

    def probabilities(self, steps: LoggedSteps) -> Array:
        """[N, A] of Discrete actions, before each step; ConfigError where they are not Discrete."""
        return self._chances(self._inputs(steps, after=False))

    def next_probabilities(self, steps: LoggedSteps) -> Array:
        """[N, A] of Discrete actions, after each step; ConfigError where they are not Discrete."""
        return self._chances(self._inputs(steps, after=True))

    def _chances(self, inputs: Array) -> Array:
        """The inputs of distributions [N, D] -> [N, A], whatever distribution of a Discrete space it is."""
        space = self._policy.action_layout.space
        if not isinstance(space, spaces.Discrete):
            raise ConfigError(f"probabilities: {space} is not Discrete. Ask the policy for logp(steps).")
        if isinstance(self._policy, QPolicy):
            return np.eye(inputs.shape[-1])[inputs.argmax(-1)]  # type: ignore[no-any-return]
        made = self._policy.dist_class(torch.from_numpy(inputs))
        each = [torch.full((len(inputs),), action) for action in range(int(space.n))]
        chances: Array = torch.stack([made.logp(actions) for actions in each], -1).exp().numpy().astype(np.float64)
        return chances

    def _inputs(self, steps: LoggedSteps, *, after: bool) -> Array:
        """[N, D] the inputs of the distributions, before or `after` each step."""
        obs = steps.next_obs if after else steps.obs
        if not self._policy.initial_state(0):
            parts = [self._filtered(obs[row : row + ROWS]) for row in range(0, len(obs), ROWS)]
            return np.concatenate([self._policy.act(part, {})[0].inputs for part in parts])
        count = len(steps.starts)
        walked = [
            self._walk(steps, np.arange(first, min(first + ROWS, count)), after=after)
            for first in range(0, count, ROWS)
        ]
        rows, inputs = (np.concatenate(each) for each in zip(*chain(*walked), strict=True))
        return inputs[rows.argsort()]

    def _walk(
        self,
        steps: LoggedSteps,
        episodes: Array,  # [E] which of them
        *,
        after: bool,
    ) -> Iterator[tuple[Array, Array]]:
        """Act in the episodes side by side; yield for each time the rows, and the inputs before or `after` them."""
        policy, starts, lengths = self._policy, steps.starts[episodes], steps.lengths[episodes]
        state = policy.initial_state(len(episodes))
        for time in range(lengths.max()):
            going = lengths > time
            starts, lengths = starts[going], lengths[going]
            rows, state = starts + time, {name: values[going] for name, values in state.items()}
            distribution, state = policy.act(self._filtered(steps.obs[rows]), state)
            rewards = self._clipped(steps.rewards[rows].astype(np.float32))
            state = policy.after_step(state, steps.actions[rows], rewards, np.zeros(len(rows), np.bool_))
            if after:
                distribution, _ = policy.act(self._filtered(steps.next_obs[rows]), state)
            yield rows, distribution.inputs
