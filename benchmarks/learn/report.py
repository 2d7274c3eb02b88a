"""benchmarks/learn/RESULTS.md from the raw results."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.learn.lines import SEEDS, Line
from benchmarks.learn.rule import Evaluation, first_pass, met
from benchmarks.speed.tables import row, table

HEAD = Path(__file__).with_name("head.md")
COLUMNS = (
    "document",
    "reward by steps",
    "",
    "first pass, steps",
    "first pass, s",
    "above it afterwards",
    "last evaluation",
    "worst seed",
    "training, last 100 episodes",
    "sampled policy, last",
    "random policy",
    "untrained policy",
    "best without its memory",
    "BC on the same data",
    "recorded episodes",
    "measured",
)
Record = dict[str, Any]  # of one seed
Results = dict[str, dict[str, Record]]  # by name of the document and seed


def report(results: Results, lines: list[Line]) -> str:
    """Return RESULTS.md as text."""
    rows = [row(*cells(line, results.get(line.document.name, {}))) for line in lines]
    records = [record for line in lines for record in results.get(line.document.name, {}).values()]
    machines = sorted({record["machine"]["processor"] for record in records})
    return "\n".join([HEAD.read_text(), *table(*COLUMNS), *rows, "", f"Processor: {', '.join(machines)}.", ""])


def is_met(line: Line, record: Record) -> bool:
    """Whether a seed met the line."""
    if "error" in record:
        return False
    unlearned = [record[key] for key in ("random", "untrained", "without") if key in record]
    return met(evaluations_of(record), line.thresholds, unlearned, compared(line, record))


def compared(line: Line, record: Record) -> float:
    """Return the reward of others that a line has to reach besides those of its document."""
    return -math.inf if line.times_bc is None else max(line.times_bc * record["bc"], record["recorded"])


def evaluations_of(record: Record) -> list[Evaluation]:
    """Return the evaluations of a seed."""
    return [Evaluation(*each) for each in record["evaluations"]]


def cells(line: Line, seeds: dict[str, Record]) -> Iterator[str]:
    """Yield the cells of a line."""
    yield line.document.name
    yield line.promise
    yield verdict(line, seeds)
    runs = [record for _, record in sorted(seeds.items()) if "error" not in record]
    if not runs:
        yield from [""] * (len(COLUMNS) - 3)
        return
    passes = [first_pass(evaluations_of(run), line.thresholds[-1]) for run in runs]
    yield each_of(passes, lambda found: f"{found.steps:,}")
    yield each_of(passes, lambda found: f"{found.seconds:.0f}")
    yield each_of(passes, lambda found: "-" if found.share_after is None else f"{found.share_after:.0%}")
    last = [run["evaluations"][-1][2] for run in runs]
    yield each_of(last, number)
    yield number(min(last))
    yield each_of([run["training"] for run in runs], number)
    yield each_of([run["sampled"] for run in runs], number)
    yield number(max(run["random"] for run in runs))
    yield number(max(run["untrained"] for run in runs))
    yield "" if line.fails_without is None else each_of([run.get("without") for run in runs], number)
    for key in ("bc", "recorded"):
        yield "" if line.times_bc is None else each_of([run[key] for run in runs], number)
    yield ", ".join(sorted({f"{run['date'][:10]} ({run['commit']})" for run in runs}))


def verdict(line: Line, seeds: dict[str, Record]) -> str:
    """Return "met", or how many seeds met it."""
    if not seeds:
        return "not run"
    count = sum(is_met(line, record) for record in seeds.values())
    return "met" if count == len(SEEDS) else f"**not met** ({count} of {len(SEEDS)})"


def each_of(values: list[Any], text: Callable[[Any], str]) -> str:
    """Return the texts of the seeds in their order."""
    return " / ".join("-" if value is None else text(value) for value in values)


def number(value: float) -> str:
    """Return a reward as text."""
    return f"{value:.0f}"
