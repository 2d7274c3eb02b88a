"""Whom a publication of weights is sent to: the workers that begin a fragment with it."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict, deque
from collections.abc import Collection

from reef.batch import Sample

# Publications that tell how long it may be until the next one, and how many fragments arrive by then.
REMEMBERED = 16
# Fragments of a worker, of which the shortest tells when it may end the next.
FRAGMENTS = 4
# How many more of the late workers may get weights than fragments arrive from one publication to the next.
MARGIN = 1.25


class Recipients:
    """Which workers begin a fragment before the next publication, as far as the last ones tell.

    To send weights takes a worker and the driver as long as many steps do, and a worker uses the newest when it begins
    a fragment: of several versions that come during one fragment all but the last are sent in vain.
    """

    def __init__(self) -> None:
        # s, of the last fragments of each worker
        self._lengths: defaultdict[int, deque[float]] = defaultdict(lambda: deque(maxlen=FRAGMENTS))
        self._ends: dict[int, float] = {}  # of the fragment that each worker is at, if it is as short as one of these
        self._served: set[int] = set()  # workers that weights were sent to in their fragment
        self._missed: set[int] = set()  # those that began a fragment without new weights: they are next
        self._arrived = 0
        # when they were, and how many fragments had arrived by then
        self._publications: deque[tuple[float, int]] = deque(maxlen=REMEMBERED + 1)

    def arrived(self, sample: Sample, now: float) -> None:
        """A worker's fragment came `now` (s), and it has begun another one."""
        index = sample.worker_index
        self._lengths[index].append(sample.timers["sample"])
        self._ends[index] = now + min(self._lengths[index])
        if index not in self._served:
            self._missed.add(index)
        self._served.discard(index)
        self._arrived += 1

    def of_publication(self, healthy: Collection[int], now: float) -> list[int]:
        """Return those of the `healthy` workers that a publication `now` (s) is worth sending to.

        They are those whose fragments end before the next one, should that take as long as the longest lately; those
        that were left out before; and of those that are late, or were not heard of yet, as many as begin a fragment by
        then: a driver that cannot keep up makes all of them late, and takes their fragments in one after the other.
        """
        self._publications.append((now, self._arrived))
        times = [time for time, _ in self._publications]
        interval = max((later - earlier for earlier, later in itertools.pairwise(times)), default=0.0)
        arrivals = (self._arrived - self._publications[0][1]) / max(len(times) - 1, 1)
        ends = {index: self._ends.get(index, -math.inf) for index in healthy}
        late = sorted((index for index, end in ends.items() if end < now), key=ends.__getitem__)
        soon = [index for index, end in ends.items() if now <= end <= now + interval]
        late = late[: max(math.ceil(MARGIN * arrivals), 1)]
        found = [*dict.fromkeys([*(index for index in healthy if index in self._missed), *late, *soon])]
        self._served.update(found)
        self._missed.clear()
        return found
