"""/metrics of a server: requests, errors, how long answers take, how many observations are one forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

# the status of an answer, as its error is called
KINDS = {
    400: "value",
    401: "token",
    403: "origin",
    404: "path",
    405: "method",
    408: "body_time",
    413: "body_size",
    415: "content_type",
    429: "busy",
    500: "failure",
}
SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class ServingMetrics:
    """Counts what one server does."""

    def __init__(self, queued: Callable[[], int]) -> None:
        """`queued()`: observations that wait or are acted on."""
        self._registry = CollectorRegistry()
        every: dict[str, Any] = {"namespace": "reef", "subsystem": "serving", "registry": self._registry}
        self._requests = Counter("requests", "Requests for actions.", **every)
        self._errors = Counter("errors", "Requests that were refused or failed, by kind.", ["kind"], **every)
        self._seconds = Histogram("request_seconds", "Time to answer a request for actions.", buckets=SECONDS, **every)
        self.batch = Histogram(
            "batch_observations", "Observations in one forward pass of the policy.", buckets=SIZES, **every
        )
        Gauge("queued_observations", "Observations that wait or are acted on.", **every).set_function(queued)
        for kind in KINDS.values():
            self._errors.labels(kind)  # also those that never happened

    @contextmanager
    def request(self) -> Iterator[None]:
        """Count a request for actions, which is answered in the block."""
        self._requests.inc()
        with self._seconds.time():
            yield

    def error(self, status: int) -> None:
        """Count an answer with this status."""
        self._errors.labels(KINDS.get(status, "failure")).inc()

    def page(self) -> bytes:
        """All of them, as Prometheus reads them."""
        return generate_latest(self._registry)
