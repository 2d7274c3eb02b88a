"""What Prometheus answers to everything that a dashboard asks, kept as JSON: a picture can be drawn again from it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Series:
    """One line of a panel."""

    name: str  # as in the legend
    labels: dict[str, str]
    points: list[tuple[float, float]]  # (seconds since 1970, value)

    @property
    def last(self) -> float:
        """The newest value."""
        return self.points[-1][1]


@dataclass(frozen=True)
class Answers:
    """Of one dashboard.

    Args:
        start: of the time shown, in seconds since 1970.
        end: of it.
        step: seconds between two points.
        chosen: values of the variables that are shown above the panels, by their label.
        found: Prometheus' results, by "<id of the panel> <reference of the query>".
    """

    start: float
    end: float
    step: float
    chosen: dict[str, str]
    found: dict[str, list[Json]]

    def series(self, panel: Json) -> Iterator[tuple[Json, list[Series]]]:
        """Each query of a panel with its series."""
        for target in panel["targets"]:
            results = self.found.get(f"{panel['id']} {target['refId']}", [])
            yield target, [read(result, target["legendFormat"]) for result in results]

    def lines(self, panel: Json) -> list[Series]:
        """The series of all queries of a panel."""
        return [each for _, found in self.series(panel) for each in found]

    def to_json(self) -> Json:
        """What `Answers(**document)` reads."""
        return asdict(self)


def read(result: Json, legend: str) -> Series:
    """A series as Prometheus writes it, of a moment or of a range."""
    labels = result["metric"]
    points = result["values"] if "values" in result else [result["value"]]
    name = re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda found: labels.get(found[1], ""), legend).strip()
    return Series(name or labels.get("__name__", ""), labels, [(float(at), float(value)) for at, value in points])


def merged(panel: Json, answers: Answers) -> tuple[list[str], list[list[str | float]]]:
    """Header and rows of a table, after the panel's transformations "merge" and "organize".

    Rows of several queries are one where the labels agree that all of them have.
    """
    tables = [
        [{**each.labels, f"Value #{target['refId']}": each.last} for each in found]
        for target, found in answers.series(panel)
        if found
    ]
    shared = set.intersection(*(set(row) for table in tables for row in table)) if tables else set()
    rows: dict[tuple[Any, ...], Json] = {}
    for table in tables:
        for row in table:
            rows.setdefault(tuple(row[key] for key in sorted(shared)), {}).update(row)
    organize = next(each["options"] for each in panel["transformations"] if each["id"] == "organize")
    columns = list(dict.fromkeys(key for row in rows.values() for key in row))
    columns = [key for key in columns if not organize["excludeByName"].get(key)]
    columns.sort(key=lambda key: key.startswith("Value #"))  # labels first; stable
    header = [organize["renameByName"].get(key, key) for key in columns]
    return header, sorted(([row.get(key, "") for key in columns] for row in rows.values()), key=str)
