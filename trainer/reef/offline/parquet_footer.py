"""How much the steps of a Parquet file take in memory, read from the end of the file before anything is unpacked.

pyarrow ends the process where this part of a file is damaged in certain ways, so that it is not asked. The format is
Thrift's compact protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from reef.offline.steps import refuse

MAGIC = b"PAR1"
LONGEST = 2**28  # bytes of the end that are read
VALUE_BYTES = 8  # that a number takes, at most
NO_PARQUET = "it is no Parquet, perhaps cut off"
TEXT = 6  # the type of columns of texts and bytes
# Fields of the structures, by their numbers.
ROW_GROUPS = 4
COLUMNS, ROWS = 1, 3
META_DATA = 3
TYPE, PATH, VALUES, UNPACKED = 1, 3, 5, 6


class StepBytes(NamedTuple):
    """Bytes of a step in memory, of the group of rows where it takes most; a number takes at most 8."""

    mean: int  # if the texts of a group are shared out among its rows
    most: int  # if each row has all of them: a text may be stored once, and be that of all rows


def step_bytes(file: Path, columns: Collection[str]) -> StepBytes:
    """How much memory a step of these columns takes.

    Raises:
        ValueError: it is no Parquet.
        OSError: it cannot be read.
    """
    reader, groups = _Reader(_end(file)), [StepBytes(1, 1)]
    try:
        for field, kind in reader.fields():
            if field != ROW_GROUPS:
                reader.skip(kind)
                continue
            groups.extend(_of_group(reader, columns) for _ in range(reader.length()))
    except (IndexError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(NO_PARQUET) from error
    return StepBytes(max(group.mean for group in groups), max(group.most for group in groups))


def _end(file: Path) -> bytes:
    with file.open("rb") as stream:
        size = stream.seek(0, 2)
        stream.seek(max(size - 8, 0))
        last = stream.read(8)
        length = int.from_bytes(last[:4], "little")
        if last[4:] != MAGIC or length > size - 8:
            refuse(NO_PARQUET)
        if length > LONGEST:
            refuse(f"its description has {length} bytes, more than the {LONGEST} that are read")
        stream.seek(size - 8 - length)
        return stream.read(length)


def _of_group(reader: _Reader, columns: Collection[str]) -> StepBytes:
    """Bytes of a step in the next group of rows."""
    numbers, texts, rows = 0, 0, 0
    for field, kind in reader.fields():
        if field == COLUMNS:
            for _ in range(reader.length()):
                found = _of_column(reader)
                if found.get(PATH) in columns:
                    texts += found.get(UNPACKED, 0) if found.get(TYPE) == TEXT else 0
                    numbers += 0 if found.get(TYPE) == TEXT else found.get(VALUES, 0)
        elif field == ROWS:
            rows = reader.number()
        else:
            reader.skip(kind)
    rows, numbers = max(rows, 1), numbers * VALUE_BYTES
    return StepBytes((numbers + texts) // rows, numbers // rows + texts)


def _of_column(reader: _Reader) -> dict[int, Any]:
    """What is said about the next column, by field."""
    found: dict[int, Any] = {}
    for field, kind in reader.fields():
        if field == META_DATA:
            for inner, inner_kind in reader.fields():
                if inner in (TYPE, VALUES, UNPACKED):
                    found[inner] = reader.number()
                elif inner == PATH:
                    names = [reader.text() for _ in range(reader.length())]
                    found[PATH] = names[0] if names else ""
                else:
                    reader.skip(inner_kind)
        else:
            reader.skip(kind)
    return found


class _Reader:
    """Reads values one after the other; IndexError where the bytes end."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0
        skip_nothing: Callable[[], Any] = bool
        self._skips: dict[int, Callable[[], Any]] = {
            1: skip_nothing, 2: skip_nothing, 3: lambda: self._forward(1), 4: self.number, 5: self.number,
            6: self.number, 7: lambda: self._forward(8), 8: lambda: self._forward(self._varint()), 9: self._skip_list,
            10: self._skip_list, 11: self._skip_map, 12: self._skip_structure, 13: lambda: self._forward(16),
        }  # fmt: skip

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yield number and type of each field of a structure; its value has to be read before the next one."""
        field = 0
        while header := self._byte():
            field = field + (header >> 4) if header >> 4 else self.number()
            yield field, header & 15

    def number(self) -> int:
        """A whole number."""
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def text(self) -> str:
        """A text."""
        length = self._varint()
        start = self._at
        self._forward(length)
        return self._data[start : self._at].decode()

    def length(self) -> int:
        """How many values the next list has."""
        return self._list()[0]

    def skip(self, kind: int) -> None:
        """Go on behind a value of a type."""
        if kind not in self._skips:
            raise IndexError
        self._skips[kind]()

    def _list(self) -> tuple[int, int]:
        header = self._byte()
        length = header >> 4
        return (self._varint() if length == 15 else length), header & 15

    def _skip_list(self) -> None:
        length, kind = self._list()
        for _ in range(length):
            self._skip_item(kind)

    def _skip_map(self) -> None:
        if length := self._varint():
            kinds = self._byte()
            for _ in range(length):
                self._skip_item(kinds >> 4)
                self._skip_item(kinds & 15)

    def _skip_item(self, kind: int) -> None:
        """Of a list, where true and false take a byte."""
        self.skip(3 if kind in (1, 2) else kind)

    def _skip_structure(self) -> None:
        for _, kind in self.fields():
            self.skip(kind)

    def _byte(self) -> int:
        byte = self._data[self._at]
        self._at += 1
        return byte

    def _forward(self, count: int) -> None:
        self._at += count
        if self._at > len(self._data):
            raise IndexError

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 128:
            value |= (byte & 127) << shift
            shift += 7
            if shift > 63:
                raise IndexError
        return value | byte << shift
