"""How late something is, from the moments at which it changed and those at which it was shown: pure functions."""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Series = Sequence[tuple[float, Hashable]]  # (moment, value from then on), in order


@dataclass(frozen=True)
class Change:
    """An object as a watch delivered it."""

    time: float  # monotonic
    clock: float  # seconds since 1970
    kind: str
    name: str
    uid: str
    job: str
    gone: bool
    facts: dict[str, Any] = field(default_factory=dict)  # what is measured of its status


def summary(values: Iterable[float]) -> dict[str, float]:
    """Number, median, 99th percentile and largest of some values, each one that occurred."""
    found = sorted(values)
    if not found:
        return {"count": 0}
    return {"count": len(found), "p50": percentile(found, 0.5), "p99": percentile(found, 0.99), "max": found[-1]}


def percentile(ordered: Sequence[float], share: float) -> float:
    """Smallest value that at least this share of all values does not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def steps(series: Iterable[tuple[float, Hashable]]) -> list[tuple[float, Hashable]]:
    """A series without repetitions of the same value."""
    kept: list[tuple[float, Hashable]] = []
    for moment, value in series:
        if not kept or kept[-1][1] != value:
            kept.append((moment, value))
    return kept


def lags(true: Series, shown: Series) -> list[float | None]:
    """For every change of what is true: seconds until it, or what followed it, is shown; None where it never is."""
    times = [moment for moment, _ in shown]
    caught = []
    for moment, value in true:  # when this very value is shown for the first time after it became true
        at = bisect.bisect_right(times, moment)
        if at and shown[at - 1][1] == value:
            caught.append(moment)
        else:
            caught.append(next((when for when, what in shown[at:] if what == value), math.inf))
    found: list[float | None] = []
    soonest = math.inf
    for (moment, _), when in zip(reversed(true), reversed(caught), strict=True):
        soonest = min(soonest, when)
        found.append(None if soonest == math.inf else soonest - moment)
    return found[::-1]


def status_lags(changes: Iterable[Change]) -> list[float | None]:
    """From a pod's change to the status that shows it: how many workers are ready, which head pod there is."""
    ready: dict[str, set[str]] = defaultdict(set)
    true: dict[tuple[str, str], list[tuple[float, Hashable]]] = defaultdict(list)
    shown: dict[tuple[str, str], list[tuple[float, Hashable]]] = defaultdict(list)
    heads: set[str] = set()
    for change in changes:
        facts = change.facts
        if change.kind == "RLTrainingJob" and not change.gone:
            shown[change.job, "workers"].append((change.time, facts["ready"]))
            shown[change.job, "head"].append((change.time, facts["head"]))
        elif change.kind == "Pod" and facts["component"] == "worker":
            joined = facts["ready"] and not change.gone
            (ready[change.job].add if joined else ready[change.job].discard)(change.uid)
            true[change.job, "workers"].append((change.time, len(ready[change.job])))
        elif change.kind == "Pod" and change.uid not in heads:
            heads.add(change.uid)
            true[change.job, "head"].append((change.time, change.uid))
    pairs = ((steps(series), steps(shown[key])) for key, series in true.items())
    return [lag for series, there in pairs for lag in lags(series, there)]


def progress_lags(changes: Iterable[Change], iteration_s: float) -> list[float]:
    """From the end of an iteration to the status that shows it or a later one; of those that were shown, the oldest."""
    before: dict[str, int] = {}
    found = []
    for change in changes:
        iteration = change.facts.get("iteration", 0)
        if change.kind == "RLTrainingJob" and iteration > before.get(change.job, 0):
            if change.job in before:
                found.append(change.clock - (before[change.job] + 1) * iteration_s)
            before[change.job] = iteration
    return found


def replacement_lags(changes: Sequence[Change], component: str) -> list[float | None]:
    """From a pod's failure to the new pod of the same part of its job; None where none came."""
    born: dict[str, list[tuple[float, str]]] = defaultdict(list)
    failed: dict[str, Change] = {}
    known: set[str] = set()
    for change in changes:
        if change.kind != "Pod" or change.facts["component"] != component:
            continue
        if change.uid not in known:
            known.add(change.uid)
            born[change.job].append((change.time, change.uid))
        if change.facts["phase"] == "Failed":
            failed.setdefault(change.uid, change)
    return [
        next((time - change.time for time, _ in born[change.job] if time > change.time), None)
        for change in failed.values()
    ]


def remade_lags(changes: Iterable[Change], kind: str) -> list[float | None]:
    """From an object's deletion to the new one of its name; None where none came."""
    gone: dict[str, float] = {}
    found: list[float | None] = []
    for change in changes:
        if change.kind == kind and change.gone:
            gone[change.name] = change.time
        elif change.kind == kind and change.name in gone:
            found.append(change.time - gone.pop(change.name))
    return found + [None] * len(gone)


def reaction_lags(changes: Sequence[Change], asked: Mapping[str, tuple[float, int]]) -> list[float | None]:
    """From what a person asked of each job to the first that the operator did for it; None where it did nothing.

    Args:
        changes: of jobs that stood still otherwise.
        asked: by job: when, and the generation that the document got by it.
    """
    first: dict[str, float] = {}
    for change in changes:
        moment, generation = asked.get(change.job, (math.inf, 0))
        seen = change.kind != "RLTrainingJob" or change.facts["generation"] >= generation
        if seen and not change.gone and change.kind != "Pod" and change.time >= moment:
            first.setdefault(change.job, change.time)
    return [first[job] - moment if job in first else None for job, (moment, _) in asked.items()]


def known(values: Iterable[Any]) -> list[float]:
    """The values without those that are missing."""
    return [value for value in values if value is not None]
