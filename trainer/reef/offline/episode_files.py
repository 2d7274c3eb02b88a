"""Files of recorded episodes: a line of JSON for each, or Parquet with a row for each step.

A row of Parquet has the columns `episode`, a number by which consecutive rows are one episode, and the keys of a step:
obs, action, next_obs, reward, terminated, truncated, and `info`, if kept, as a text of JSON. There are always the
columns `action_logp` and `policy_action`, a flat list of numbers; they are null where a step has none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import numpy as np

from reef.errors import ConfigError, StorageError
from reef.offline import rllib_files
from reef.trees import json_safe

if TYPE_CHECKING:
    import pyarrow as pa

PARQUET = ".parquet"
ENDINGS = (".json", ".jsonl", PARQUET)
NUMBER = "episode"
ROWS = 10_000  # of Parquet that are read at a time
STEP_KEYS = ("obs", "action", "next_obs", "reward", "terminated", "truncated", "info")
# Of a step, where they are known: how likely its action was, and the action before it was brought into its bounds.
ACTION_LOGP, CHOSEN = "action_logp", "policy_action"
Steps = list[dict[str, Any]]


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
        ...

    def size(self) -> int:
        """Bytes that were written so far."""
        ...

    def close(self) -> None:
        """End it; one that is new and got no episode is removed, and one that was there stays as it was then."""
        ...


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

    The first episode says which columns there are beside those, and what type each one has.
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

    def add(self, episode: PlayedEpisode) -> None:
        """Write an episode as a group of rows; StorageError for a key or a type that the first one does not have."""
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
        self._writer.write_table(table)

    def size(self) -> int:
        """Bytes that were written so far."""
        return self._stream.tell()

    def close(self) -> None:
        """Write the end, and put the file in its place."""
        if self._writer is not None:
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
    if "info" in plain:
        plain["info"] = json.dumps(plain["info"])
    if plain.get(CHOSEN) is not None:
        plain[CHOSEN] = np.ravel(plain[CHOSEN]).tolist()
    return plain


def recorded_in(file: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield for each episode of a file where it is, and a function that returns its steps or raises what is wrong.

    Raises:
        ConfigError: the file cannot be read.
    """
    try:
        if file.suffix == PARQUET:
            yield from _in_parquet(file)
            return
        with file.open(encoding="utf-8", errors="replace") as stream:
            for number, line in enumerate(stream, 1):
                if line.strip():
                    yield from _in_line(f"{file}, line {number}", line)
    except OSError as error:
        raise ConfigError(f"input_: {file} cannot be read: {error.strerror or error}.") from error


def _in_line(place: str, line: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The episode of a line, or those of a batch that RLlib wrote."""
    try:
        found = json.loads(line)
    except json.JSONDecodeError:
        yield place, partial(_refuse, "it is no JSON, perhaps cut off")
        return
    if not rllib_files.is_batch(found):
        yield place, lambda: found["steps"]
        return
    try:
        for steps in rllib_files.episodes_of(found):
            yield place, partial(_given, steps, rllib_files.NO_SUCCESSOR)
    except ValueError as error:
        yield place, partial(_refuse, str(error))


def _in_parquet(file: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(file) as opened:
            names = opened.schema_arrow.names
            if NUMBER not in names:
                yield str(file), partial(_refuse, f"it has no column {NUMBER!r}, only {names}")
                return
            rows = (row for batch in opened.iter_batches(ROWS) for row in _rows(batch))
            for number, steps in groupby(rows, key=lambda row: row.pop(NUMBER)):
                found = list(steps)
                yield f"{file}, episode {number}", lambda found=found: found  # type: ignore[misc]
    except pa.ArrowException as error:
        yield str(file), partial(_refuse, f"it is no Parquet, perhaps cut off: {error}")


def _rows(batch: pa.RecordBatch) -> Steps:
    """The steps, without the optional keys that they have not."""
    rows: Steps = batch.to_pylist()
    return [
        {key: value for key, value in row.items() if value is not None or key not in (ACTION_LOGP, CHOSEN)}
        for row in rows
    ]


def _given(steps: Steps, missing: str) -> Steps:
    """The steps; ValueError where there are none, for which `missing` is the reason."""
    return steps or _refuse(missing)


def _refuse(reason: str) -> NoReturn:
    raise ValueError(reason)
