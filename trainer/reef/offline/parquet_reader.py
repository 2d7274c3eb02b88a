"""Episodes read from Parquet: a row is a step, and rows that follow each other with one number are an episode.

A file is read in parts of about `PART_BYTES`, so that one larger than memory can be read. How many rows a part has
follows from what the end of the file says of itself, before anything is decompressed. While the episodes of a part are
used, a thread reads the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from reef.errors import nearest
from reef.offline.parquet_footer import NO_PARQUET, step_bytes
from reef.offline.steps import (
    ACTION_LOGP,
    ACTION_PROB,
    CHOSEN,
    EPISODE_BYTES,
    MIB,
    NUMBER,
    STEP_KEYS,
    TIME,
    Column,
    ColumnSteps,
    EpisodeGroup,
    Found,
    Recorded,
    one_by_one,
    refuse,
    with_successors,
)
from reef.types import Array

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import parquet

Names = Mapping[str, str | list[str]]  # by the key of a step: its column, or the columns with a number each
ROWS = 2**15  # that are read at a time, at most
PART_BYTES = 64 * MIB  # that rows which are read at a time may take
STEP_BYTES = 256 * MIB  # that a step may take
NUMERIC = {*STEP_KEYS, ACTION_LOGP, CHOSEN, ACTION_PROB, TIME} - {"info"}
READ_BYTES = MIB  # of a file at a time
RETURNS = "rows with its number are before other episodes, too. Sort the file by episode, or number it again"


def parquet_episodes(file: Path, keys: Collection[str] | None = None, names: Names | None = None) -> Iterator[Recorded]:
    """Yield the episodes of a file.

    `keys`: of what is read of a step, where the file has it; None: all columns. `names`: of the columns of somebody
    else's file; None: as Reef writes them.

    Raises:
        OSError: the file cannot be read.
    """
    import pyarrow as pa
    from pyarrow import parquet

    try:
        # Without a buffer of its size a whole group of rows would be read at a time.
        with (
            parquet.ParquetFile(file, pre_buffer=False, buffer_size=READ_BYTES) as opened,
            ThreadPoolExecutor(1, "parquet") as thread,
        ):
            chosen = _chosen(opened.schema_arrow, keys, names)
            columns = list(chain.from_iterable(map(_listed, chosen.values())))
            of_others = names is not None
            batches = batches_of(file, opened, columns)
            parts = _ahead(thread, (_part(batch, chosen, of_others=of_others) for batch in batches))
            found = _episodes(str(file), parts)
            yield from _with_successors(found) if of_others and "next_obs" not in chosen else found
    except OSError as error:
        if error.errno is not None:
            raise
        yield str(file), partial(refuse, f"it is damaged: {_first_line(error)}")
    except pa.ArrowException as error:
        yield str(file), partial(refuse, f"{NO_PARQUET}: {_first_line(error)}")
    except UnicodeDecodeError:
        yield str(file), partial(refuse, "it is damaged: it holds a text that is none")
    except ValueError as error:
        yield str(file), partial(refuse, str(error))


def batches_of(file: Path, opened: parquet.ParquetFile, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Rows of the columns, about `PART_BYTES` at a time, never more than an episode may take.

    Raises:
        ValueError: a step takes more than `STEP_BYTES`.
    """
    mean, most = step_bytes(file, columns)
    if mean > STEP_BYTES:
        refuse(f"a step of it takes {mean // MIB} MiB, more than the {STEP_BYTES // MIB} MiB that are read")
    yield from opened.iter_batches(max(min(ROWS, PART_BYTES // mean, EPISODE_BYTES // most), 1), columns=columns)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].rstrip(".")


def _chosen(schema: pa.Schema, keys: Collection[str] | None, names: Names | None) -> Names:
    """The columns to read by the key of a step; ValueError where one is missing, or holds what is not read."""
    if names is None:
        known = dict.fromkeys(schema.names) if keys is None else [key for key in (*keys, NUMBER) if key in schema.names]
        names = {key: key for key in known}
        if NUMBER not in schema.names:
            refuse(f"it has no column {NUMBER!r}, only {schema.names}. To name its columns set input_config.columns")
    for key, parts in names.items():
        for name in _listed(parts):
            if name not in schema.names:
                refuse(f"it has no column {name!r}.{nearest(name, schema.names)} It has {schema.names}")
            if schema.names.count(name) > 1:
                refuse(f"it has the column {name!r} twice")
            _check_type(key, name, schema.field(name).type, is_part=isinstance(parts, list))
    return names


def _listed(names: str | list[str]) -> list[str]:
    return names if isinstance(names, list) else [names]


def _check_type(key: str, name: str, kind: pa.DataType, *, is_part: bool) -> None:
    """ValueError for bytes and texts where numbers belong: others pack columns as pickles, which can run code."""
    import pyarrow as pa
    from pyarrow import types

    if key == NUMBER:
        value = kind.value_type if types.is_dictionary(kind) else kind
        is_text = types.is_string(value) or types.is_large_string(value) or types.is_string_view(value)
        if not (is_text or types.is_integer(value) or types.is_floating(value)):
            refuse(f"its column {name!r} holds {kind}, expected the number of an episode")
        return
    if is_part and not _is_number(kind):
        refuse(f"its column {name!r} holds {kind}, expected a number, as it is in a list of columns of {key}")
    for leaf in _leaf_types(kind):
        if types.is_binary(leaf) or types.is_large_binary(leaf) or types.is_fixed_size_binary(leaf):
            refuse(f"its column {name!r} holds {leaf}, which is not read, as it may be a pickle, which can run code")
        if key in NUMERIC and not (_is_number(leaf) or leaf == pa.null()):
            refuse(f"its column {name!r} holds {leaf}, expected numbers")


def _is_number(kind: pa.DataType) -> bool:
    from pyarrow import types

    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _leaf_types(kind: pa.DataType) -> Iterator[pa.DataType]:
    from pyarrow import types

    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        yield from _leaf_types(kind.value_type)
    elif types.is_struct(kind):
        for field in kind:
            yield from _leaf_types(field.type)
    else:
        yield kind


class _Part(NamedTuple):
    """Rows that were read at a time, of E episodes; the first and the last of these may go on in other parts."""

    numbers: list[Any]  # [E]
    bounds: list[int]  # [E + 1] of the rows of each
    ended: Array  # [E] bool: whether the last of its rows ended it
    steps: ColumnSteps
    row_bytes: float


def _part(batch: pa.RecordBatch, chosen: Names, *, of_others: bool) -> _Part:
    """Rows of a file; `of_others`: it need not say which steps were truncated."""
    numbers = _numbers(batch.column(chosen[NUMBER]))
    columns = {key: _column(batch, names) for key, names in chosen.items() if key != NUMBER}
    if of_others:
        columns = {"truncated": np.zeros(len(numbers), np.bool_), **columns}
    last = np.append(np.flatnonzero(numbers[1:] != numbers[:-1]), len(numbers) - 1)
    ended = np.zeros(len(last), np.bool_)
    for key in ("terminated", "truncated"):
        if key in columns:
            ended |= [bool(value) for value in _rows_of(columns[key], last)]
    bounds = [0, *(last + 1).tolist()]
    return _Part(numbers[last].tolist(), bounds, ended, ColumnSteps(columns), batch.nbytes / len(numbers))


def _ahead(thread: Executor, parts: Iterator[_Part]) -> Iterator[_Part]:
    """The parts, of which a thread reads the next one."""
    coming = thread.submit(next, parts, None)
    while (part := coming.result()) is not None:
        coming = thread.submit(next, parts, None)
        yield part


def _episodes(file: str, parts: Iterable[_Part]) -> Iterator[Recorded]:
    """The episodes of parts of a file; the last one of a part may go on in the next, so that it is read alone."""
    split, unfinished = _Split(), set[Any]()
    for part in parts:
        first, last = 0, len(part.numbers) - 1
        if split.rows and part.numbers[0] == split.number:
            split.add(part, 0)
            first = 1
        if first > last:
            continue
        if split.rows:
            yield split.episode(file, unfinished)
            split = _Split()
        yield from _whole(file, part, slice(first, last), unfinished)
        split.add(part, last)
    if split.rows:
        yield split.episode(file, unfinished)


def _whole(file: str, part: _Part, chosen: slice, unfinished: set[Any]) -> Iterator[Recorded]:
    """Those episodes of a part that lie in it as a whole."""
    numbers, bounds = part.numbers[chosen], part.bounds[chosen.start : chosen.stop + 1]
    group, ended = EpisodeGroup(file, numbers, bounds, part.steps), part.ended[chosen]
    # The usual case costs no work for each episode.
    nothing_returns = not unfinished and bool(ended.all())
    returned = [] if nothing_returns else [_returns(*each, unfinished) for each in zip(numbers, ended, strict=True)]
    if not any(returned):
        yield from [group] if numbers else []
        return
    for returns, (place, steps) in zip(returned, group.each(), strict=True):
        yield place, partial(refuse, RETURNS) if returns else steps


def _returns(number: Any, has_ended: bool, unfinished: set[Any]) -> bool:
    """Whether an episode before it has the same number and no end; `unfinished`: the numbers of these."""
    returns = number in unfinished
    unfinished.discard(number)
    if not has_ended:
        unfinished.add(number)
    return returns


def _rows_of(column: Column, rows: Array) -> list[Any]:
    """The values of some rows."""
    found: list[Any] = column[rows].tolist() if isinstance(column, np.ndarray) else [column[row] for row in rows]
    return found


class _Split:
    """An episode whose rows may lie in several parts of the file; at most `EPISODE_BYTES` of them are held."""

    def __init__(self) -> None:
        self.rows: list[ColumnSteps] = []
        self.number: Any = None
        self._has_ended = False  # in its newest row
        self._bytes = 0.0

    def add(self, part: _Part, index: int) -> None:
        start, end = part.bounds[index : index + 2]
        self.number, self._has_ended = part.numbers[index], part.ended[index]
        self._bytes += (end - start) * part.row_bytes
        rows = part.steps.between(start, end)
        self.rows = [rows] if self._bytes > EPISODE_BYTES else [*self.rows, rows]

    def episode(self, file: str, unfinished: set[Any]) -> Found:
        """The episode; `unfinished`: as of `_returns`."""
        place = f"{file}, episode {self.number}"
        if self._bytes > EPISODE_BYTES:
            return place, partial(refuse, f"it takes more than the {EPISODE_BYTES // MIB} MiB that an episode may")
        if _returns(self.number, self._has_ended, unfinished):
            return place, partial(refuse, RETURNS)
        return place, partial(_joined_steps, self.rows)


def _numbers(column: pa.Array) -> Any:
    """[N] of the episode of each row."""
    import pyarrow as pa

    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    if column.null_count:
        refuse("a row has no number of its episode")
    numbers = column.to_numpy(zero_copy_only=False)
    if numbers.dtype.kind == "f" and not np.isfinite(numbers).all():
        refuse("the number of an episode is not finite")
    return numbers


def _joined_steps(parts: list[ColumnSteps]) -> ColumnSteps:
    if len(parts) == 1:
        return parts[0]
    return ColumnSteps({key: _joined([part.columns[key] for part in parts]) for key in parts[0].columns})


def _joined(parts: list[Column]) -> Column:
    arrays = [part for part in parts if isinstance(part, np.ndarray)]
    if len(arrays) == len(parts) and len({part.shape[1:] for part in arrays}) == 1:
        return np.concatenate(arrays)
    return list(chain.from_iterable(parts))


def _with_successors(found: Iterable[Recorded]) -> Iterator[Found]:
    """Episodes that others wrote, with what the next row says of each step."""
    for place, steps in one_by_one(found):
        yield place, partial(_following, steps)


def _following(steps: Callable[[], ColumnSteps]) -> ColumnSteps:
    return ColumnSteps(with_successors(steps().columns))


def _column(batch: pa.RecordBatch, names: str | list[str]) -> Column:
    """[N, ...] of one column, [N, n] of a list of n columns."""
    if isinstance(names, str):
        return values_of(batch.column(names))
    columns = [batch.column(name) for name in names]
    if any(column.null_count for column in columns):
        refuse(f"one of {names} has no value in one of the steps")
    return np.stack([column.to_numpy(zero_copy_only=False) for column in columns], axis=1)


def values_of(column: pa.Array) -> Column:
    """Numbers, or lists of numbers of one shape, as an array [N, ...]; other values as a list."""
    from pyarrow import types

    shape, inner = [len(column)], column
    while types.is_list(inner.type) or types.is_large_list(inner.type) or types.is_fixed_size_list(inner.type):
        is_fixed = types.is_fixed_size_list(inner.type)
        lengths = np.array([inner.type.list_size]) if is_fixed else np.diff(inner.offsets.to_numpy())
        if inner.null_count or (lengths != lengths[:1]).any():
            return column.to_pylist()  # type: ignore[no-any-return]
        shape.append(int(lengths[0]) if len(lengths) else 0)
        inner = inner.flatten()
    if inner.null_count or not _is_number(inner.type):
        return column.to_pylist()  # type: ignore[no-any-return]
    found: Column = inner.to_numpy(zero_copy_only=False).reshape(shape)
    return found
