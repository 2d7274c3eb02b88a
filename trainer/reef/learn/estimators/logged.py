"""What an estimator reads: recorded steps, and the policy that is to be evaluated by them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from reef.batch import Rollout
from reef.errors import ConfigError
from reef.offline.steps import ACTION_LOGP
from reef.types import Array


class TargetPolicy(Protocol):
    """The policy whose value is estimated. What it does in a step may depend on the earlier steps of the episode."""

    def logp(self, steps: LoggedSteps) -> Array:
        """[N] log-likelihoods of the recorded actions."""

    def probabilities(self, steps: LoggedSteps) -> Array:
        """[N, A] of the actions of a Discrete space, for the observation of each step."""

    def next_probabilities(self, steps: LoggedSteps) -> Array:
        """[N, A], for the observation after each step."""


@dataclass(frozen=True)
class LoggedSteps:
    """N steps of n episodes, one episode after the other."""

    obs: Array  # [N, *obs]
    actions: Array  # [N, *action]
    rewards: Array  # [N] float64
    next_obs: Array  # [N, *obs]
    terminated: Array  # [N] bool
    starts: Array  # [n] the first step of each episode
    # [N] of the recorded actions, by the policy that took them; NaN where that is not recorded
    behavior_logp: Array

    @classmethod
    def of(cls, episodes: Sequence[Rollout]) -> LoggedSteps:
        """The steps of episodes [T, 1]."""
        lengths = [len(episode.rewards) for episode in episodes]

        def joined(name: str) -> Array:
            return np.concatenate([getattr(episode, name)[:, 0] for episode in episodes])

        logp = [episode.extras.get(ACTION_LOGP, np.full(episode.shape, np.nan))[:, 0] for episode in episodes]
        return cls(
            obs=joined("obs"),
            actions=joined("actions"),
            rewards=joined("rewards").astype(np.float64),
            next_obs=joined("next_obs"),
            terminated=joined("terminated"),
            starts=np.cumsum([0, *lengths[:-1]]),
            behavior_logp=np.concatenate(logp).astype(np.float64),
        )

    def __len__(self) -> int:
        return len(self.rewards)

    def step_by_step(self) -> LoggedSteps:
        """The same steps, each as an episode that ends with it: those of a contextual bandit."""
        ended = np.ones(len(self), np.bool_)
        columns = vars(self) | {"terminated": ended, "starts": np.arange(len(self))}
        return LoggedSteps(**columns)

    def part(self, chosen: Array) -> LoggedSteps:
        """Those of the `chosen` episodes, [n] bool."""
        rows, lengths = np.repeat(chosen, self.lengths), self.lengths[chosen]
        columns = {name: column[rows] for name, column in vars(self).items() if name != "starts"}
        return LoggedSteps(**columns, starts=np.cumsum([0, *lengths[:-1]]))

    @property
    def lengths(self) -> Array:
        """[n] steps of each episode."""
        return np.diff([*self.starts, len(self)])

    @property
    def times(self) -> Array:
        """[N] steps since the start of the episode."""
        times: Array = np.arange(len(self)) - np.repeat(self.starts, self.lengths)
        return times

    def sums(self, values: Array) -> Array:
        """[N] -> [n] summed over each episode."""
        sums: Array = np.add.reduceat(values, self.starts)
        return sums

    def check_likelihoods(self) -> None:
        """Raise ConfigError where one of `behavior_logp` is not recorded."""
        if np.isnan(self.behavior_logp).any():
            missing = np.count_nonzero(np.isnan(self.sums(self.behavior_logp)))
            raise ConfigError(
                f"{missing} of {len(self.starts)} recorded episodes do not say how likely the recorded actions were "
                "(action_logp, or action_prob). Record episodes with the setting output, or with reef evaluate --out "
                "--explore, by a policy that draws its actions; or estimate by 'dm', which does not need it."
            )

    def log_ratios(self, target: TargetPolicy) -> Array:
        """[N] of each action: its log-likelihood by the target, less that by the policy that took it.

        Raises:
            ConfigError: the latter is not recorded.
        """
        self.check_likelihoods()
        return target.logp(self).astype(np.float64) - self.behavior_logp
