"""How large a job document may be: what is larger is refused before anything else looks at it."""

from __future__ import annotations

from reef.errors import ConfigError

MAX_BYTES = 256 * 1024  # as JSON
MAX_DEPTH = 64  # mappings and lists inside each other


def check_limits(document: object) -> None:
    """Accept a parsed document of at most about `MAX_BYTES` and `MAX_DEPTH` levels, in a time that both bound.

    Raises:
        ConfigError: it is larger or deeper.
    """
    size, depth = _size(document), 0
    level = [document] if isinstance(document, dict | list) else []
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise ConfigError(
                f"the document is nested more than {MAX_DEPTH} levels deep: keep what is deeper in a file of the image"
            )
        inner: list[object] = []
        for each in level:
            size += 2 * len(each)  # what stands between them
            if size > MAX_BYTES:
                raise _too_large()
            if isinstance(each, dict):
                size += sum(map(_size, each))
                inner.extend(each.values())
            else:
                inner.extend(each)
        size += sum(map(_size, inner))
        if size > MAX_BYTES:
            raise _too_large()
        level = [each for each in inner if each.__class__ is dict or each.__class__ is list]


def _too_large() -> ConfigError:
    return ConfigError(
        f"the document has more than {MAX_BYTES // 1024} KiB as JSON: keep large values in a file of the image"
    )


def _size(value: object) -> int:
    """About how many bytes a value has as JSON, without what is inside it."""
    match value:
        case str():
            return len(value.encode(errors="replace")) + 2
        case dict() | list():
            return 2
        case float():
            return len(repr(value))
        case int():
            return value.bit_length() // 3 + 1
    return 4
