"""What is learned from, in the log: one summary at INFO, further ones at DEBUG."""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from reef.run.events import BatchLearned, Events
from reef.types import Array

log = logging.getLogger(__name__)
PAUSE_S = 10.0  # between two summaries


class BatchSummaries:
    """Logs names, shapes, types, minimum, mean and maximum of what is in the first batch that is learned from.

    At DEBUG it does so again and again, with `PAUSE_S` between two.
    """

    def __init__(self) -> None:
        self._last = -math.inf  # by time.monotonic()

    def learned(self, event: BatchLearned) -> None:
        """Log a summary if one is due."""
        first, now = self._last == -math.inf, time.monotonic()
        level = logging.INFO if first else logging.DEBUG
        if not log.isEnabledFor(level) or now - self._last < PAUSE_S:
            return
        self._last = now
        for policy_id in event.updates:
            log.log(level, "learned from for %r: %s", policy_id, summary_of(event.batches[policy_id]))


def summarize_batches(events: Events) -> None:
    """Log summaries of the batches of a run, where its log shows them; else nothing is called."""
    if log.isEnabledFor(logging.INFO):
        events.subscribe(BatchLearned, BatchSummaries().learned)


def summary_of(batch: Any) -> str:
    """A batch in words, a line for each of its arrays; of a list of batches the first one."""
    parts = batch if isinstance(batch, list) else [batch]
    found = parts[0]
    head = f"{sum(map(len, parts))} steps" + (f" in {len(parts)} parts, of which the first" if parts[1:] else "")
    arrays = [f"\n  {name}: {array_text(array)}" for name, array in arrays_of(found)]
    return f"{head} ({type(found).__name__}){''.join(arrays) or ', which stay in the workers'}"


def arrays_of(batch: Any) -> Iterator[tuple[str, Array]]:
    """Name and array of what a batch holds, such as "obs" and "extras.action_logp"."""
    for field in dataclasses.fields(batch):
        value = getattr(batch, field.name)
        held = {f"{field.name}.{key}": each for key, each in value.items()} if isinstance(value, Mapping) else {}
        for name, array in {field.name: value, **held}.items():
            if isinstance(array, np.ndarray):
                yield name, array


def array_text(array: Array) -> str:
    """Type, shape, minimum, mean and maximum."""
    text = f"{array.dtype} {list(array.shape)}"
    if not array.size or array.dtype == object:
        return text
    return f"{text}, min {array.min():.6g}, mean {array.mean():.6g}, max {array.max():.6g}"
