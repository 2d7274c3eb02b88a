"""How large a job document may be: what is larger is refused before anything else looks at it."""

from __future__ import annotations

from reef.errors import ConfigError

MAX_BYTES = 256 * 1024  # as JSON
MAX_DEPTH = 64  # mappings and lists inside each other
MAX_VALUES = 10_000  # numbers, texts, mappings, lists: what it takes to look at a document goes by their number
PROBLEMS = (  # of a document with more levels, bytes or values than these
    (MAX_DEPTH, f"is nested more than {MAX_DEPTH} levels deep, or holds itself by an alias: keep what is deeper"),
    (MAX_BYTES, f"has more than {MAX_BYTES // 1024} KiB, with its aliases written out: keep large values"),
    (
        MAX_VALUES,
        f"has more than {MAX_VALUES:,} numbers, texts, lists and mappings, with its aliases written out: keep tables",
    ),
)


def check_limits(document: object, source: str = "the document") -> None:
    """Accept a parsed document of at most about `MAX_BYTES`, `MAX_DEPTH` levels and `MAX_VALUES`, in a bounded time.

    A value that occurs several times, as by YAML's aliases, counts each time. One that holds itself is too deep.

    Raises:
        ConfigError: it is larger or deeper.
    """
    size, depth, values = _size(document), 0, 1
    level = [document] if isinstance(document, dict | list | tuple) else []
    while level:
        depth += 1
        check_counts(size, depth, source)
        inner: list[object] = []
        for each in level:
            size += 2 * len(each)  # what separates them
            values += len(each)
            check_counts(size, depth, source, values)
            if isinstance(each, dict):
                size += sum(map(_size, each))
                inner.extend(each.values())
            else:
                inner.extend(each)
        size += sum(map(_size, inner))
        level = [each for each in inner if isinstance(each, dict | list | tuple)]
    check_counts(size, depth, source)


def check_counts(size: int, depth: int, source: str, values: int = 0) -> None:
    """Raise `ConfigError` where these bytes, levels or values are too many for a document."""
    for count, (most, problem) in zip((depth, size, values), PROBLEMS, strict=True):
        if count > most:
            raise ConfigError(f"{source} {problem} in a file of the image")


def _size(value: object) -> int:
    """About how many bytes a value has as JSON, without what is inside it."""
    match value:
        case str():
            return len(value.encode(errors="replace")) + 2
        case dict() | list() | tuple():
            return 2
        case float():
            return len(repr(value))
        case int():
            return value.bit_length() // 3 + 1
    return 4
