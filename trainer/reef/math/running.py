"""Running mean and variance of a stream, without storing its values."""

from __future__ import annotations

import math

import numpy as np

from reef.types import Array, State


class RunningStat:
    """Count, mean and sum of squared deviations of the values pushed so far, per element of `shape`, in float64.

    Batches and other statistics are merged by the pairwise update of Chan, Golub & LeVeque, "Updating formulae and a
    pairwise algorithm for computing sample variances" (1979), eq. 2.1, which loses no precision far from zero.
    """

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        self.count = 0
        self.mean = np.zeros(shape)
        self.m2 = np.zeros(shape)

    @property
    def variance(self) -> Array:
        """Sample variance (divided by count - 1); 1 for fewer than two values."""
        return self.m2 / (self.count - 1) if self.count > 1 else np.ones_like(self.m2)

    @property
    def std(self) -> Array:
        """Square root of the variance."""
        return np.sqrt(self.variance)

    def push(
        self,
        values: Array,  # [N, *shape]
    ) -> None:
        """Add N values."""
        count = len(values)
        if count == 0:
            return
        mean = np.add.reduce(values, 0, np.float64) / count
        deviation = values - mean
        self._combine(count, mean, np.add.reduce(deviation * deviation, 0))

    def merge(self, other: RunningStat) -> None:
        """Add all values of another statistic."""
        if other.mean.shape != self.mean.shape:
            raise ValueError(f"cannot merge statistics of shape {other.mean.shape} into those of {self.mean.shape}.")
        if other.count:
            self._combine(other.count, other.mean, other.m2)

    def _combine(self, count: int, mean: Array, m2: Array) -> None:
        total = self.count + count
        shift = mean - self.mean
        self.mean = self.mean + shift * (count / total)
        self.m2 = self.m2 + m2 + shift * shift * (self.count * count / total)
        self.count = total

    def copy(self) -> RunningStat:
        """An independent copy."""
        return RunningStat.of(self.state())

    def state(self) -> State:
        """Count and arrays, for checkpoints."""
        return {"count": self.count, "mean": self.mean.copy(), "m2": self.m2.copy()}

    @classmethod
    def of(cls, state: State) -> RunningStat:
        """Restore a statistic from its state."""
        stat = cls()
        stat.count = int(state["count"])
        stat.mean, stat.m2 = np.array(state["mean"], np.float64), np.array(state["m2"], np.float64)
        return stat

    def __repr__(self) -> str:
        return f"RunningStat(count={self.count}, elements={math.prod(self.mean.shape)})"
