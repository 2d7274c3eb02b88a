"""Values that change with training time, such as a learning rate that falls."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from reef.errors import ConfigError

Scheduled = float | list[list[float]]  # one number, or points [[t, value], ...]


class Schedule:
    """A value over environment steps: linear between the points, constant after the last one.

    Raises:
        ConfigError: the first point is not at 0, the times do not rise, or a point is not a pair.
    """

    def __init__(self, value: float | Sequence[Sequence[float]]) -> None:
        points = [[0.0, value]] if isinstance(value, int | float) else list(value)
        if not points or any(len(point) != 2 for point in points):
            raise ConfigError(f"schedule {value!r}: expected points [[0, value], [timestep, value], ...].")
        self._times = [float(time) for time, _ in points]
        self._values = [float(level) for _, level in points]
        if self._times[0] != 0:
            raise ConfigError(f"schedule {value!r}: the first timestep must be 0, not {self._times[0]:g}.")
        if any(later <= earlier for earlier, later in pairwise(self._times)):
            raise ConfigError(f"schedule {value!r}: every timestep must be larger than the one before it.")

    def __call__(self, timestep: float) -> float:
        """The value at `timestep` (environment steps)."""
        right = bisect_right(self._times, timestep)
        if right == len(self._times):
            return self._values[-1]
        if right == 0:
            return self._values[0]
        start, end = self._times[right - 1], self._times[right]
        share = (timestep - start) / (end - start)
        return self._values[right - 1] + share * (self._values[right] - self._values[right - 1])
