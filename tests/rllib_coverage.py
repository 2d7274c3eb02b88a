"""The table of what RLlib's documentation promises, docs/rllib-coverage.tsv, and the page that `make docs` makes of it.

A row has a proof: for what works a test, for what was decided a place in the documents, for what is missing a text.
"""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLE, PAGE = ROOT / "docs" / "rllib-coverage.tsv", ROOT / "docs" / "rllib-coverage.md"
COLUMNS = ("group", "id", "promise", "status", "proof")
STATUSES = ("works", "decided", "missing")
INTRODUCTION = """# What RLlib promises, and Reef does

Generated from [rllib-coverage.tsv](rllib-coverage.tsv) by `make docs`; do not edit.

Each row is a promise of RLlib's documentation (Ray 1.12 to 2.10), in one sentence.

- **works**: the test beside it fails if it stops working.
- **decided**: Reef does it in another way, or refuses it. The link says how, and what to use.
- **missing**: not there yet. Where it is a setting, another value than the default is refused.

[from-rllib.md](from-rllib.md) says what moved where.
"""


@dataclass(frozen=True)
class Row:
    """One promise."""

    group: str
    id: str
    promise: str
    status: str
    proof: str


def read_table() -> list[Row]:
    """The rows in the order of the file; a row of another number of fields is an error of `Row`."""
    with TABLE.open(newline="") as stream:
        header, *lines = csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
    assert tuple(header) == COLUMNS, header
    return [Row(*line) for line in lines]


def page(rows: list[Row]) -> str:
    """The page in Markdown: counts, then a table for each group."""
    groups = list(dict.fromkeys(row.group for row in rows))
    counts = Counter((row.group, row.status) for row in rows)
    total = Counter(row.status for row in rows)
    lines = [INTRODUCTION, f"| | {' | '.join(STATUSES)} |", "|---|---|---|---|"]
    lines += [
        _counts(f"[{group}](#{_anchor(group)})", [counts[group, status] for status in STATUSES]) for group in groups
    ]
    lines.append(_counts("all", [total[status] for status in STATUSES]))
    for group in groups:
        lines += [f"\n## {group}\n", "| | promise | | by |", "|---|---|---|---|"]
        lines += [_line(row) for row in rows if row.group == group]
    return "\n".join(lines) + "\n"


def _counts(name: str, counts: list[int]) -> str:
    return f"| {name} | {' | '.join(map(str, counts))} |"


def _anchor(group: str) -> str:
    return group.lower().replace(" ", "-")


def _line(row: Row) -> str:
    promise, proof = (text.replace("|", "\\|") for text in (row.promise, row.proof))
    if row.status == "works":
        path, _, test = proof.partition("::")
        proof = f"[{test}](../{path})"
    elif row.status == "decided":
        proof = f"[{proof.removeprefix('docs/')}]({proof.removeprefix('docs/')})"
    return f"| `{row.id}` | {promise} | {row.status} | {proof} |"


if __name__ == "__main__":
    PAGE.write_text(page(read_table()))
