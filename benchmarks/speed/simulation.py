"""One driver with any number of asynchronous workers, as discrete events."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, replace

from reef.batch import Sample
from reef.run.flows.async_rollouts import MOST_FRAGMENTS
from reef.run.flows.recipients import Recipients

FRAGMENT, BATCH = 50, 500  # steps
REQUESTS, QUEUE = 2, 16  # fragments requested of a worker; batches that wait
SECONDS = 4.0  # of a simulation


@dataclass(frozen=True)
class Costs:
    """Seconds of the driver's thread."""

    fragment: float  # to request, receive and count one
    request: float  # the part of it that asks an actor for something
    look: float  # for each worker, whenever the driver looks for fragments
    update: float  # of the learner, on a batch
    version: float  # to read the weights
    post: float  # to send a version to one worker

    def aggregated(self) -> Costs:
        """With other processes that receive fragments and hand over batches, the driver passes on what to fetch.

        It asks two actors for each fragment, and receives one object for each batch.
        """
        batch = self.fragment * FRAGMENT / BATCH
        return replace(self, fragment=min(2 * self.request + batch, self.fragment))


class Simulation:
    """The flow `async_rollouts`: workers sample, and one thread does what its costs say.

    Args:
        workers: number of workers, each with a fragment every `fragment_s` seconds while it has requests.
        costs: of the driver.
        fragment_s: seconds to sample a fragment.
        interval: updates between two publications of the weights.
        apart: whether the learner has a process of its own.
    """

    def __init__(
        self, workers: int, costs: Costs, fragment_s: float, interval: int = 1, *, apart: bool = False
    ) -> None:
        self.workers, self.costs, self.fragment_s = workers, costs, fragment_s
        self.interval, self.apart = interval, apart
        self.now = self.learner_free_at = 0.0
        self.ends = [(fragment_s * (index + 0.5) / workers, index) for index in range(workers)]  # a heap
        self.requested = [REQUESTS] * workers  # with the one under way
        self.finished: deque[int] = deque()  # workers whose fragments were not taken in yet
        self.waiting = self.updates = self.dropped = 0  # fragments; updates; batches
        self.recipients = Recipients()
        self.seconds = {"fragments": 0.0, "weights": 0.0, "updates": 0.0}

    def run(self) -> None:
        """Simulate some seconds."""
        while self.now < SECONDS:
            if self.waiting * FRAGMENT >= BATCH and not (self.apart and self.learner_free_at > self.now):
                self._update()
            else:
                self._collect()

    @property
    def rate(self) -> float:
        """Steps learned from per second."""
        return self.updates * BATCH / self.now

    def share(self, what: str) -> float:
        """The part of the driver's time that something took."""
        return self.seconds[what] / self.now

    def _spend(self, what: str, seconds: float) -> None:
        self.now += seconds
        self.seconds[what] += seconds

    def _update(self) -> None:
        self.waiting -= BATCH // FRAGMENT
        self.updates += 1
        self.learner_free_at = self.now + self.costs.update
        if not self.apart:
            self._spend("updates", self.costs.update)
        if self.updates % self.interval == 0:
            sent = len(self.recipients.of_publication(range(self.workers), self.now))
            self._spend("weights", self.costs.version + self.costs.post * sent)

    def _collect(self) -> None:
        """Wait for a fragment or the learner, take in what is there, and ask for as much."""
        if not self.finished and self.ends[0][0] > self.now:
            learner = self.learner_free_at if self.apart and self.learner_free_at > self.now else self.ends[0][0]
            self.now = min(self.ends[0][0], learner)
        while self.ends and self.ends[0][0] <= self.now:
            end, index = heapq.heappop(self.ends)
            self.finished.append(index)
            self.requested[index] -= 1
            if self.requested[index]:
                heapq.heappush(self.ends, (end + self.fragment_s, index))
        taken = [self.finished.popleft() for _ in range(min(len(self.finished), MOST_FRAGMENTS))]
        self._spend("fragments", self.costs.fragment * len(taken) + self.costs.look * self.workers)
        for index in taken:
            sample = Sample({}, [], FRAGMENT, FRAGMENT, worker_index=index, timers={"sample": self.fragment_s})
            self.recipients.arrived(sample, self.now)
            if not self.requested[index]:
                heapq.heappush(self.ends, (self.now + self.fragment_s, index))
            self.requested[index] += 1
        self.waiting += len(taken)
        while self.waiting * FRAGMENT > QUEUE * BATCH:
            self.waiting -= BATCH // FRAGMENT
            self.dropped += 1
