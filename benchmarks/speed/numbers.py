"""Medians and spreads from the raw results; what was not measured is None."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

Run = dict[str, Any]


@dataclass(frozen=True)
class Spread:
    """Median, lowest and highest of several runs."""

    median: float
    low: float
    high: float

    def text(self, digits: int = 0) -> str:
        """Return "median (low - high)"."""
        shown = [f"{value:,.{digits}f}" for value in (self.median, self.low, self.high)]
        return f"{shown[0]} ({shown[1]} - {shown[2]})"


@dataclass(frozen=True)
class Numbers:
    """Access to results.json by part and case."""

    results: dict[str, Any]

    def runs(self, part: str, case: str) -> list[Run]:
        """Return the runs of a case, none when it was not measured or failed."""
        found: list[Run] = self.results["parts"].get(part, {}).get("cases", {}).get(case, {}).get("runs", [])
        return found

    def spread(self, part: str, case: str, value: Callable[[Run], float]) -> Spread | None:
        """Return the spread of `value` over the runs of a case."""
        return _spread([value(run) for run in self.runs(part, case)])

    def rate(self, part: str, case: str) -> Spread | None:
        """Return environment steps per second."""
        return self.spread(part, case, _rate)

    def rates(self, part: str, *cases: str) -> list[Spread | None]:
        """Return the rates of cases to compare, over the rounds that all of those measured took part in."""
        runs = [self.runs(part, case) for case in cases]
        rounds = min((len(found) for found in runs if found), default=0)
        return [_spread([_rate(run) for run in found[:rounds]]) for found in runs]

    def field(self, part: str, case: str, key: str) -> Spread | None:
        """Return the spread of a field of the script's answer."""
        return self.spread(part, case, lambda run: run[key])

    def limit(self, name: str) -> Spread | None:
        """Return one of the machine's limits, if it was among what was measured."""
        return _spread([run["rates"][name] for run in self.runs("limits", "limits") if name in run["rates"]])


def _rate(run: Run) -> float:
    steps: float = run["steps"]
    return steps / run["seconds"]


def _spread(values: list[float]) -> Spread | None:
    return Spread(median(values), min(values), max(values)) if values else None


def ratio(above: Spread | None, below: Spread | None) -> float | None:
    """Return the ratio of two medians."""
    return above.median / below.median if above and below else None


def fastest(spreads: list[Spread | None]) -> Spread | None:
    """Return the spread with the highest median."""
    return max((spread for spread in spreads if spread), key=lambda spread: spread.median, default=None)
