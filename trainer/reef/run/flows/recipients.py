"""Whom a publication of weights is sent to: the workers that begin a fragment with it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection

from reef.batch import Sample

# Publications that the time and the fragments from one to the next are means of.
REMEMBERED = 16
# How many more workers may get weights than fragments arrive from one publication to the next.
MARGIN = 1.25


class Recipients:
    """Which workers begin a fragment before the next publication, as far as the last ones tell.

    To send weights takes a worker and the driver as long as many steps do, and a worker uses the newest when it begins
    a fragment: of several versions that come during one fragment all but the last are sent in vain.
    """

    def __init__(self) -> None:
        self._ends: dict[int, float] = {}  # of the fragment that each worker is at
        self._arrived = 0
        # when they were, and how many fragments had arrived by then
        self._publications = deque([(-math.inf, 0)], maxlen=REMEMBERED + 1)

    def arrived(self, sample: Sample, now: float) -> None:
        """A worker's fragment came `now` (s): it has begun another one, which takes as long."""
        self._ends[sample.worker_index] = now + sample.timers["sample"]
        self._arrived += 1

    def of_publication(self, healthy: Collection[int], now: float) -> list[int]:
        """Return those of the `healthy` workers that a publication `now` (s) is worth sending to.

        First come those that were not heard of yet, then those whose fragments end first. A driver that cannot keep up
        makes all workers late; only as many of them begin a fragment as it takes fragments in.
        """
        self._publications.append((now, self._arrived))
        (then, before), count = self._publications[0], len(self._publications) - 1
        interval, arrivals = (now - then) / count, (self._arrived - before) / count
        ends = {index: self._ends.get(index, -math.inf) for index in healthy}
        due = sorted((index for index, end in ends.items() if end <= now + interval), key=ends.__getitem__)
        return due[: max(math.ceil(MARGIN * arrivals), 1)]
