"""Tables of Markdown."""

from __future__ import annotations

from collections.abc import Iterator


def table(*titles: str) -> Iterator[str]:
    """Yield the first two lines of a table."""
    yield row(*titles)
    yield "|" + "---|" * len(titles)


def row(*cells: str) -> str:
    """Return a line of a table."""
    return "| " + " | ".join(cells) + " |"
