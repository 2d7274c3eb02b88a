"""`MemoryTrackingCallbacks`: the memory of each worker as custom metrics."""

from __future__ import annotations

import resource
import tracemalloc
from pathlib import Path
from typing import Any

from reef.callbacks.default import DefaultCallbacks

TOP = 20
"""How many lines of code are reported."""


class MemoryTrackingCallbacks(DefaultCallbacks):
    """Reports, with each episode, the lines of code that hold most memory, and what the process uses, in bytes.

    Python traces every allocation for it, which makes a worker slower.
    """

    def __init__(self) -> None:
        tracemalloc.start(10)

    def on_episode_end(self, *, episode: Any, **kwargs: Any) -> None:
        """Report the memory of this process."""
        statistics = tracemalloc.take_snapshot().statistics("lineno")
        for entry in statistics[:TOP]:
            frame = entry.traceback[0]
            episode.custom_metrics[f"tracemalloc/{frame.filename}:{frame.lineno}/size"] = entry.size
        episode.custom_metrics.update({f"memory/{name}": value for name, value in _of_process().items()})


def _of_process() -> dict[str, int]:
    """Bytes of this process, resident, data and virtual; empty on a system without /proc."""
    try:
        pages = [int(count) for count in Path("/proc/self/statm").read_text().split()]
    except FileNotFoundError:
        return {}
    return {name: pages[index] * resource.getpagesize() for name, index in (("rss", 1), ("data", 5), ("vms", 0))}
