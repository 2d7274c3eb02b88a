"""What happens in a run, as typed events: metrics, reporters and the copy in an object store subscribe to them.

Handlers run at once, in the thread that emits, in the order of their subscription; what they raise ends the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

from reef.batch import Sample
from reef.learn.learner import Update
from reef.run.metrics import Result
from reef.run.reporters.reporter import Run, Summary
from reef.types import PolicyId

P = ParamSpec("P")
E = TypeVar("E")


class RunStarted(NamedTuple):
    """The first iteration is about to begin; nothing may be written to disk yet, as it can still fail."""

    run: Run


class SampleTaken(NamedTuple):
    """A worker has returned a fragment."""

    sample: Sample


class BatchLearned(NamedTuple):
    """The learners have improved each policy on its batch."""

    updates: dict[PolicyId, Update]
    # by policy what was learned from: a batch, or a list of its parts
    batches: Mapping[PolicyId, Any]


class Evaluated(NamedTuple):
    """An evaluation has ended."""

    iteration: int
    metrics: Result


class ResultReported(NamedTuple):
    """An iteration has ended."""

    result: Result


class CheckpointSaved(NamedTuple):
    """There is a new checkpoint, or that from which a run goes on."""

    path: Path
    iteration: int
    seconds: float | None  # that it took to write; None for one that an earlier process wrote


class RunEnded(NamedTuple):
    """No iteration follows."""

    summary: Summary | None  # None when the run failed with an error


class Events:
    """Passes each event to the subscribers of its kind."""

    def __init__(self) -> None:
        self._handlers: dict[object, list[Callable[[Any], None]]] = {}

    def subscribe(self, kind: type[E], handler: Callable[[E], None]) -> None:
        """Have `handler(event)` called for every event of this kind."""
        self._handlers.setdefault(kind, []).append(handler)

    def emit(self, kind: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Make the event `kind(*args, **kwargs)` and call its handlers; without any, nothing is made."""
        if handlers := self._handlers.get(kind):
            event = kind(*args, **kwargs)
            for handler in handlers:
                handler(event)
