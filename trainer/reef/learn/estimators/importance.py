"""Importance sampling: recorded rewards, weighed by how much more likely the target is to get there (Precup 2000)."""

from __future__ import annotations

import numpy as np

from reef.learn.estimators.estimator import OffPolicyEstimator
from reef.learn.estimators.logged import LoggedSteps, TargetPolicy
from reef.types import Array

MOST_LOG = 700.0  # above it float64 is infinite


def summed_logs(
    log_ratios: Array,  # [N] of each step
    starts: Array,  # [n] the first step of each episode
) -> Array:  # [N]
    """The logarithms of the products of ratios from the start of the episode up to and with each step."""
    return np.concatenate([episode.cumsum() for episode in np.split(log_ratios, starts[1:])])


class ImportanceSampling(OffPolicyEstimator):
    """Per decision: each reward counts by the product of the ratios up to its action.

    Unbiased; its variance grows with the length of episodes. A product above e^700 counts as e^700.
    """

    needs_likelihoods = True

    def values(self, steps: LoggedSteps, target: TargetPolicy) -> Array:
        """[n] sum over t of gamma^t rho_{0:t} r_t."""
        logs = self._summed_logs(steps, target)
        return steps.sums(self.gamma**steps.times * np.exp(np.minimum(logs, MOST_LOG)) * steps.rewards)

    def _summed_logs(self, steps: LoggedSteps, target: TargetPolicy) -> Array:
        """[N] log rho_{0:t}; the last ones [n] of the episodes are kept."""
        logs = summed_logs(steps.log_ratios(target), steps.starts)
        self._last = logs[steps.starts + steps.lengths - 1]
        return logs

    def details(self) -> dict[str, float]:
        """How many episodes of the target's own would be about as good, by their weights (Kish 1965)."""
        largest = self._last.max()
        if np.isneginf(largest):
            return {"effective_episodes": 0.0}
        shares = np.exp(self._last - largest)
        return {"effective_episodes": float(shares.sum() ** 2 / (shares**2).sum())}


class WeightedImportanceSampling(ImportanceSampling):
    """As importance sampling, with the ratios of each step divided by their mean over all episodes.

    Biased, but less with more episodes, and with far less variance. An episode that ended keeps its last ratio in the
    means, as if it went on without reward: without it, means over those that go on would not weigh how many do.
    Products of many ratios are beyond float64, so that everything but their quotients is in logarithms.
    """

    def values(self, steps: LoggedSteps, target: TargetPolicy) -> Array:
        """[n] sum over t of gamma^t rho_{0:t} / w_t r_t, where w_t is the mean of rho_{0:t} over episodes."""
        logs, times, lengths = self._summed_logs(steps, target), steps.times, steps.lengths
        order = np.argsort(times, kind="stable")
        # [N] in the order of time, of each step: its time, its episode, its log rho_{0:t} and gamma^t r_t
        self._times, self._episodes = times[order], np.repeat(np.arange(len(lengths)), lengths)[order]
        self._logs, self._discounted = logs[order], (self.gamma**times * steps.rewards)[order]
        # [T] where the steps of each time begin in that order
        self._begin = np.searchsorted(self._times, np.arange(lengths.max()))
        self._lengths, count = lengths, len(lengths)
        found = self._shares(np.ones(count)) * self._discounted
        return np.bincount(self._episodes, found, count) * count

    def resampled(self, values: Array, counts: Array) -> Array:
        """[K]: the means of the ratios are drawn too."""
        return np.array([self._shares(drawn) @ self._discounted for drawn in counts])

    def _shares(self, counts: Array) -> Array:
        """Counts [n] of the episodes -> [N] the weight of each step among all episodes at its time.

        The weights of one time, with those of ended episodes, sum to 1; 0 where the target takes no recorded action.
        """
        with np.errstate(divide="ignore"):
            drawn = np.log(counts)
        logs = self._logs + drawn[self._episodes]
        by_length = np.full(len(self._begin) + 1, -np.inf)
        np.logaddexp.at(by_length, self._lengths, self._last + drawn)
        ended = np.logaddexp.accumulate(by_length)[:-1]
        largest = np.maximum(np.maximum.reduceat(logs, self._begin), ended)
        largest[np.isneginf(largest)] = 0.0
        products = np.exp(logs - largest[self._times])
        totals = np.add.reduceat(products, self._begin) + np.exp(ended - largest)
        shares: Array = products / np.where(totals > 0, totals, 1.0)[self._times]
        return shares
