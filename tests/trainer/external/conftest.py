"""`serve(algorithm, ...)`: a worker with a policy server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from applications import settings

from reef.external.worker import ExternalWorker


@pytest.fixture
def serve() -> Iterator[Callable[..., ExternalWorker]]:
    """`serve(algorithm, ...)`: a worker with a server, for settings as of `settings`."""
    workers: list[ExternalWorker] = []

    def make(*args: Any, **given: Any) -> ExternalWorker:
        workers.append(ExternalWorker(settings(*args, **given).checked()))
        return workers[-1]

    yield make
    for worker in workers:
        worker.stop()
