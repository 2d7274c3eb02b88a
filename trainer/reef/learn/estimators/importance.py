"""Importance sampling: recorded rewards, weighed by how much more likely the target is to get there (Precup 2000)."""

from __future__ import annotations

import numpy as np

from reef.learn.estimators.estimator import OffPolicyEstimator
from reef.learn.estimators.logged import LoggedSteps, TargetPolicy
from reef.types import Array

MOST_LOG = 700.0  # above it float64 is infinite


def ratio_products(
    log_ratios: Array,  # [N] of each step
    starts: Array,  # [n] the first step of each episode
) -> Array:  # [N]
    """The products of the ratios from the start of the episode up to and with each step."""
    sums = np.concatenate([episode.cumsum() for episode in np.split(log_ratios, starts[1:])])
    products: Array = np.exp(np.minimum(sums, MOST_LOG))
    return products


class ImportanceSampling(OffPolicyEstimator):
    """Per decision: each reward counts by the product of the ratios up to its action.

    Unbiased; its variance grows with the length of episodes.
    """

    def values(self, steps: LoggedSteps, target: TargetPolicy) -> Array:
        """[n] sum over t of gamma^t rho_{0:t} r_t."""
        self._products = ratio_products(steps.log_ratios(target), steps.starts)
        self._last = self._products[steps.starts + steps.lengths - 1]
        return steps.sums(self.gamma**steps.times * self._products * steps.rewards)

    def details(self) -> dict[str, float]:
        """How many episodes of the target's own would be about as good, by their weights (Kish 1965)."""
        shares = self._last / self._last.max() if self._last.max() > 0 else self._last
        total = float(shares.sum())
        return {"effective_episodes": total**2 / float((shares**2).sum()) if total else 0.0}


class WeightedImportanceSampling(ImportanceSampling):
    """As importance sampling, with the ratios of each step divided by their mean over all episodes.

    Biased, but less with more episodes, and with far less variance. An episode that ended keeps its last ratio in the
    means, as if it went on without reward: without it, means over those that go on would not weigh how many do.
    """

    def values(self, steps: LoggedSteps, target: TargetPolicy) -> Array:
        """[n] sum over t of gamma^t rho_{0:t} / w_t r_t, where w_t is the mean of rho_{0:t} over episodes."""
        super().values(steps, target)
        self._steps, times, count = steps, steps.times, len(steps.starts)
        self._discounted = self.gamma**times * steps.rewards
        means = self._mean_products(np.ones((1, count)))[0]
        return steps.sums(self._discounted * self._shares(means[times]))

    def resampled(self, values: Array, counts: Array) -> Array:
        """[K]: the means of the ratios are drawn too."""
        steps, times = self._steps, self._steps.times
        means = self._mean_products(counts)
        drawn = np.repeat(counts, steps.lengths, axis=1) * self._discounted
        found: Array = (drawn * self._shares(means[:, times])).sum(1) / counts.sum(1)
        return found

    def _mean_products(self, counts: Array) -> Array:
        """Counts [K, n] of the episodes -> [K, T] the mean product at each time, with the last ones of ended ones."""
        steps, times = self._steps, self._steps.times
        longest = int(times.max()) + 1
        going_on = np.zeros((len(counts), longest))
        ended = np.zeros((len(counts), longest + 1))
        for row, drawn in enumerate(counts):
            weights = np.repeat(drawn, steps.lengths) * self._products
            going_on[row] = np.bincount(times, weights, longest)
            ended[row] = np.bincount(steps.lengths, drawn * self._last, longest + 1)
        means: Array = (going_on + ended.cumsum(1)[:, :-1]) / counts.sum(1, keepdims=True)
        return means

    def _shares(self, means: Array) -> Array:
        """The products [N] over their means [..., N]; 0 where the target takes none of the recorded actions."""
        shares: Array = np.divide(self._products, means, out=np.zeros(means.shape), where=means > 0)
        return shares
