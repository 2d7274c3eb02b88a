"""Files of recorded episodes: a line of JSON for each, or Parquet with a row for each step.

A row of Parquet has the columns `episode`, a number by which consecutive rows are one episode, and the keys of a step:
obs, action, next_obs, reward, terminated, truncated, and `info`, if kept, as a text of JSON. There are always the
columns `action_logp` and `policy_action`, a flat list of numbers; they are null where a step has none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

import msgspec
import numpy as np

from reef.errors import ConfigError, StorageError
from reef.offline import rllib_files
from reef.offline.minari.reader import minari_episodes
from reef.offline.parquet_reader import Names, parquet_episodes
from reef.offline.steps import ACTION_LOGP, CHOSEN, MIB, NO_SUCCESSOR, NUMBER, Found, Recorded, Steps, refuse
from reef.trees import json_safe

if TYPE_CHECKING:
    import pyarrow as pa

PARQUET = ".parquet"
ENDINGS = (".json", ".jsonl", PARQUET)
GROUP_ROWS, GROUP_BYTES = 10_000, 8 * MIB  # of a group of rows in Parquet, which is written once it has one of them
LINE_BYTES = 256 * MIB  # that a line of JSON may take, which takes ten times as much as it is parsed


@dataclass
class PlayedEpisode:
    """One episode as it was played; `reward` is what all agents got together."""

    number: int
    reward: float = 0.0
    length: int = 0
    # False: the step limit cut it
    complete: bool = False
    # filled only where steps are kept
    steps: Steps = field(default_factory=list)

    def keep(self, keys: Sequence[str], obs: Any, *step: Any) -> Any:
        """Keep `keys`, the first of `STEP_KEYS`, of what a step began with and gave; returns its next observation."""
        # An environment may return the same objects with every step, and change what they hold.
        *values, info = step
        values = deepcopy(values)
        self.steps.append(dict(zip(keys, (obs, *values, copy(info)), strict=False)))
        return values[1]


class EpisodeFile(Protocol):
    """A file to which episodes are written."""

    def add(self, episode: PlayedEpisode) -> None:
        """Write an episode."""

    def size(self) -> int:
        """Bytes that were written so far."""

    def close(self) -> None:
        """End it; one that is new and got no episode is removed, and one that was there stays as it was then."""


def episode_file(path: str, flag: str = "--out ") -> EpisodeFile:
    """The file to write at `path`, whose ending says in which form; StorageError where it cannot be written.

    `flag`: what is before the path on the command line.
    """
    try:
        return ParquetFile(path) if path.endswith(PARQUET) else JsonLinesFile(path)
    except OSError as error:
        raise StorageError(f"{flag}{path}: cannot be written: {error.strerror}.") from error


class JsonLinesFile:
    """A line of JSON per episode, written when it ends: a process that is killed leaves every finished one."""

    def __init__(self, path: str, *, new: bool = False) -> None:
        """`new`: raise FileExistsError where there is one."""
        self._path, self._is_new, self._is_empty = path, not os.path.lexists(path), True
        self._stream = open(path, "x" if new else "a", encoding="utf-8")  # noqa: SIM115 (`close` does)

    def add(self, episode: PlayedEpisode) -> None:
        """Write and flush a line."""
        if self._is_empty and os.path.isfile(self._path):  # which /dev/stdout need not be
            self._stream.truncate(0)
        self._is_empty = False
        self._stream.write(json.dumps(json_safe(vars(episode))) + "\n")
        self._stream.flush()

    def size(self) -> int:
        """Bytes that were written so far."""
        return self._stream.tell()

    def close(self) -> None:
        """Close the file."""
        if self._is_new and self._is_empty:
            os.unlink(self._path)
        self._stream.close()


class ParquetFile:
    """Parquet cannot be read before its end is written: until then it is `<name>.part`, which a killed process leaves.

    The first episode says which columns there are beside those, and what type each one has. Several short episodes are
    one group of rows, as a file says of each group where it is, which readers read before all else.
    """

    def __init__(self, path: str, *, new: bool = False, compressed: Sequence[str] | None = None) -> None:
        """`new`: raise FileExistsError where there is one, or somebody writes it.

        `compressed`: the columns that are compressed, by LZ4; None: all, as pyarrow does it.
        """
        self._compressed = compressed
        self._path, self._part = Path(path), Path(f"{path}.part")
        if new and self._path.exists():
            raise FileExistsError(path)
        self._stream = self._part.open("xb" if new else "wb")
        self._writer: Any = None
        # the episodes of the group of rows under way, and what they take in memory
        self._group: list[pa.Table] = []
        self._group_rows = self._group_bytes = 0

    def add(self, episode: PlayedEpisode) -> None:
        """Add an episode to the group under way; StorageError for a key or a type that the first one does not have."""
        import pyarrow as pa
        from pyarrow import parquet

        try:
            rows = [{NUMBER: episode.number, **_plain(step)} for step in episode.steps]
            table = _table(rows, None if self._writer is None else self._writer.schema)
        except (pa.ArrowException, OverflowError, ValueError) as error:
            raise StorageError(
                f"{self._path}: episode {episode.number} does not fit into the columns of Parquet: {error}. Write JSON "
                "lines, into a file that ends with .json."
            ) from error
        if self._writer is None:
            codec: Any = "snappy"
            if self._compressed is not None:
                columns = [table.schema.field(name) for name in self._compressed]
                codec = {leaf: "lz4" for column in columns for leaf in _leaves(column)}
            self._writer = parquet.ParquetWriter(self._stream, table.schema, compression=codec)
        self._group.append(table)
        self._group_rows += table.num_rows
        self._group_bytes += table.nbytes
        if self._group_rows >= GROUP_ROWS or self._group_bytes >= GROUP_BYTES:
            self._write_group()

    def _write_group(self) -> None:
        import pyarrow as pa

        if self._group:
            self._writer.write_table(pa.concat_tables(self._group))
            self._group, self._group_rows, self._group_bytes = [], 0, 0

    def size(self) -> int:
        """Bytes that were written so far, and those that the group of rows under way takes in memory."""
        return self._stream.tell() + self._group_bytes

    def close(self) -> None:
        """Write the rest and the end, and put the file in its place."""
        if self._writer is not None:
            self._write_group()
            self._writer.close()
        self._stream.close()
        if self._writer is not None:
            self._part.replace(self._path)
        else:
            self._part.unlink()


def _leaves(field: pa.Field, place: str = "") -> Iterator[str]:
    """The columns that Parquet has for a field: of nested values, one for each innermost part."""
    import pyarrow as pa

    place = f"{place}{field.name}"
    if pa.types.is_list(field.type):
        yield from _leaves(field.type.value_field.with_name("element"), f"{place}.list.")
    elif pa.types.is_struct(field.type):
        for part in field.type:
            yield from _leaves(part, f"{place}.")
    else:
        yield place


def _table(rows: Steps, schema: pa.Schema | None) -> pa.Table:
    """The rows by columns, those of `schema` if there is one; ArrowException or OverflowError where they do not fit."""
    import pyarrow as pa

    optional = {ACTION_LOGP: pa.float64(), CHOSEN: pa.list_(pa.float64())}
    names = dict.fromkeys(key for row in rows for key in row)
    if schema is None:
        columns = {name: pa.array([row.get(name) for row in rows], optional.get(name)) for name in names}
        absent = {name: pa.nulls(len(rows), kind) for name, kind in optional.items() if name not in names}
        return pa.table(columns | absent)
    if others := sorted(names.keys() - set(schema.names)):
        raise pa.ArrowInvalid(f"there is no column {others[0]!r}, only {schema.names}")
    return pa.Table.from_pylist(rows, schema)


def _plain(step: Mapping[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = json_safe(step)
    if not isinstance(plain.get("info", ""), str):  # one that was read from Parquet is a text
        plain["info"] = json.dumps(plain["info"])
    if plain.get(CHOSEN) is not None:
        plain[CHOSEN] = np.ravel(plain[CHOSEN]).tolist()
    return plain


def recorded_in(file: Path, keys: Collection[str] | None = None, names: Names | None = None) -> Iterator[Recorded]:
    """Yield the episodes of a file, those of Parquet in groups.

    `file`: or the folder of a data set of Minari. `keys`, `names`: of Parquet, as of `parquet_episodes`.

    Raises:
        ConfigError: the file cannot be read, or has lines of JSON although `names` are given.
    """
    try:
        if file.suffix == PARQUET:
            yield from parquet_episodes(file, keys, names)
            return
        if names is not None:
            raise ConfigError(
                f"input_config.columns: {file} is no {PARQUET} file, which has columns. Give a place of Parquet alone."
            )
        if file.is_dir():
            yield from minari_episodes(file, keys)
            return
        with file.open("rb") as stream:
            for number, line in enumerate(_lines(stream), 1):
                place = f"{file}, line {number}"
                if line is None:
                    yield place, partial(refuse, f"it is longer than {LINE_BYTES // MIB} MiB. Write Parquet")
                elif line.strip():
                    yield from _in_line(place, line)
    except OSError as error:
        raise ConfigError(f"input_: {file} cannot be read: {error.strerror or error}.") from error


def _lines(stream: BinaryIO) -> Iterator[bytes | None]:
    """The lines; None for one that is longer than `LINE_BYTES`, of which no more is held."""
    while line := stream.readline(LINE_BYTES):
        if len(line) < LINE_BYTES:
            yield line
            continue
        while line and not line.endswith(b"\n"):
            line = stream.readline(MIB)
        yield None


def _in_line(place: str, line: bytes) -> Iterator[Found]:
    """The episode of a line, or those of a batch that RLlib wrote."""
    try:
        found = _parsed(line)
    except json.JSONDecodeError:
        yield place, partial(refuse, "it is no JSON, perhaps cut off")
        return
    except (ValueError, RecursionError):
        yield place, partial(refuse, "it holds a number with too many digits, or too many lists in each other")
        return
    if not rllib_files.is_batch(found):
        yield place, lambda: found["steps"]
        return
    try:
        for steps in rllib_files.episodes_of(found):
            yield place, partial(_given, steps, NO_SUCCESSOR)
    except ValueError as error:
        yield place, partial(refuse, str(error))


def _parsed(line: bytes) -> Any:
    """As `json.loads`, five times as fast where the line has neither NaN nor broken characters."""
    try:
        return msgspec.json.decode(line)
    except (ValueError, RecursionError):
        return json.loads(line.decode(errors="replace"))


def _given(steps: Steps, missing: str) -> Steps:
    """The steps; ValueError where there are none, for which `missing` is the reason."""
    return steps or refuse(missing)
