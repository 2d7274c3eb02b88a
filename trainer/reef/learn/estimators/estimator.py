"""What every estimator does: a value of each episode, their mean, and how sure it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from reef.learn.estimators.logged import LoggedSteps, TargetPolicy
from reef.spaces import Layout
from reef.types import Array

RESAMPLES = 1000
NUMBERS = 4_000_000  # in the arrays of the bootstrap
INTERVAL = (2.5, 97.5)  # percent


class OffPolicyEstimator(ABC):
    """Estimates the mean discounted return of a policy. A subclass writes `values`; its keywords are settings."""

    # of the recorded actions, by the policy that took them
    needs_likelihoods = False

    def __init__(self, observations: Layout, actions: Layout, *, gamma: float, seed: int | None = None) -> None:
        """`observations`, `actions`: the layouts of recorded steps. `seed`: of what it draws."""
        self.observations, self.actions, self.gamma, self.seed = observations, actions, gamma, seed

    def check(self, steps: LoggedSteps) -> None:
        """Raise ConfigError where the steps do not have what it needs; called once, before any estimate."""
        if self.needs_likelihoods:
            steps.check_likelihoods()

    @abstractmethod
    def values(self, steps: LoggedSteps, target: TargetPolicy) -> Array:
        """[n] the value of the target by each episode; the estimate is their mean.

        Raises:
            ConfigError: the policy does not have what it needs.
        """

    def resampled(self, values: Array, counts: Array) -> Array:
        """[n] values, and counts [K, n] of how often each episode was drawn -> [K] estimates."""
        means: Array = counts @ values / counts.sum(1)
        return means

    def details(self) -> dict[str, float]:
        """What else is reported of the last `values`."""
        return {}

    def estimate(self, steps: LoggedSteps, target: TargetPolicy) -> dict[str, Any]:
        """The values of both policies, with RLlib's names, and a 95 % interval of the target's by the bootstrap.

        `v_behavior` and `v_target` are means over episodes, with their standard deviations `_std`; `v_gain` is their
        ratio, None unless `v_behavior` is above 0, as the ratio of losses would say the opposite.
        """
        behavior = steps.sums(self.gamma**steps.times * steps.rewards)
        values = self.values(steps, target)
        low, high = np.percentile(self._bootstrap(values, len(steps)), INTERVAL)
        v_behavior, v_target = float(behavior.mean()), float(values.mean())
        return {
            "v_behavior": v_behavior,
            "v_behavior_std": float(behavior.std()),
            "v_target": v_target,
            "v_target_std": float(values.std()),
            "v_target_low": float(low),
            "v_target_high": float(high),
            "v_gain": v_target / v_behavior if v_behavior > 0 else None,
            "v_delta": v_target - v_behavior,
            "episodes": len(values),
            **self.details(),
        }

    def _bootstrap(self, values: Array, num_steps: int) -> Array:
        """[K] estimates from as many episodes, drawn with replacement (Efron 1979)."""
        count = len(values)
        # 4: a random stream other than those of workers, replay and recorded steps
        rng = np.random.default_rng(None if self.seed is None else [self.seed, 0, 4])
        few_at_a_time = max(NUMBERS // num_steps, 1)
        found = []
        for first in range(0, RESAMPLES, few_at_a_time):
            rows = min(few_at_a_time, RESAMPLES - first)
            counts = rng.multinomial(count, np.full(count, 1 / count), size=rows).astype(np.float64)
            found.append(self.resampled(values, counts))
        return np.concatenate(found)
