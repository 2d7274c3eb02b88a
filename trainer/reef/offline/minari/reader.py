"""Episodes read from a data set of Minari, one after the other.

An episode has an observation more than steps. Files of Arrow and Parquet repeat that row in the other columns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reef.errors import ConfigError
from reef.offline.minari.data_set import HDF5, DataSet
from reef.offline.minari.values import Stored, values_of
from reef.offline.parquet_reader import batches_of
from reef.offline.steps import EPISODE_BYTES, MIB, Column, ColumnSteps, Found, refuse, wrong_step

if TYPE_CHECKING:
    import h5py
    import pyarrow as pa

SCALAR = {"type": "Discrete"}  # the space of a number for each step
DEEPEST = 8  # parts of parts that are read
Read = Callable[[str], Stored]  # the values of an episode by the name that Minari gives them


def minari_episodes(folder: Path, keys: Collection[str] | None = None) -> Iterator[Found]:
    """Yield the episodes of the data set in a folder; `keys` of steps as of `parquet_episodes`.

    Raises:
        ConfigError: its format needs a package that is not installed.
        OSError: a file cannot be read.
    """
    try:
        data = DataSet.at(folder)
        yield from (_in_hdf5 if data.form == "hdf5" else _in_arrow)(data, keys)
    except ValueError as error:
        yield str(folder), partial(refuse, str(error))


def _steps(data: DataSet, read: Read, keys: Collection[str] | None) -> ColumnSteps:
    columns = {
        "obs": _values(read, "observations", data.observations, jpeg=data.jpeg),
        "action": _values(read, "actions", data.actions, jpeg=data.jpeg),
        "reward": _values(read, "rewards", SCALAR),
        "terminated": _values(read, "terminations", SCALAR),
        "truncated": _values(read, "truncations", SCALAR),
    }
    count = len(columns["obs"]) - 1
    for key in ("action", "reward", "terminated", "truncated"):
        columns[key] = columns[key] if data.form == "hdf5" else columns[key][:-1]
        if len(columns[key]) != count:
            refuse(f"it has {len(columns[key])} of {key} and {count + 1} observations, expected one more of these")
    columns["next_obs"], columns["obs"] = columns["obs"][1:], columns["obs"][:-1]
    if keys is None and isinstance(infos := read("infos"), Mapping) and infos:
        # The first info is that of the reset.
        columns["info"] = [_info(infos, step + 1) for step in range(count)]
    return ColumnSteps(columns)


def _values(read: Read, name: str, space: Any, *, jpeg: bool = False) -> Column:
    if (stored := read(name)) is None:
        refuse(f"it has no {name}")
    try:
        return values_of(space, stored, jpeg=jpeg)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{name}: {wrong_step(error)}") from error


def _info(infos: Mapping[str, Any], step: int) -> dict[str, Any]:
    return {
        key: _info(part, step) if isinstance(part, Mapping) else part[step : step + 1][0]
        for key, part in infos.items()
        if isinstance(part, Mapping) or len(part) > step
    }


def _in_hdf5(data: DataSet, keys: Collection[str] | None) -> Iterator[Found]:
    try:
        import h5py
    except ModuleNotFoundError as error:
        raise ConfigError(f"input_: {data.folder} has HDF5, which `pip install 'reef[minari]'` can read.") from error
    file = data.folder / HDF5
    try:
        with h5py.File(file, "r") as opened:
            names = sorted((name for name in opened if name.startswith("episode_")), key=_number_of)
            for name in names:
                yield f"{file}, {name}", partial(_steps_of_hdf5, data, opened, name, keys)
    except (OSError, RuntimeError, KeyError) as error:
        if isinstance(error, OSError) and error.errno:
            raise
        yield str(file), partial(refuse, f"it is no HDF5, perhaps cut off: {error}")


def _number_of(name: str) -> tuple[int, str]:
    number = name.rpartition("_")[2]
    return (int(number) if number.isdecimal() else -1, name)


def _steps_of_hdf5(data: DataSet, file: h5py.File, name: str, keys: Collection[str] | None) -> ColumnSteps:
    try:
        episode = _own_member(file, name)
        return _steps(data, lambda key: _stored(episode, key) if key in episode else None, keys)
    except (OSError, RuntimeError, KeyError, TypeError) as error:
        raise ValueError(f"it is damaged: {error}") from error


def _own_member(group: h5py.Group, name: str) -> Any:
    """What lies in a group; ValueError for a link, which may lead to any file of this machine."""
    import h5py

    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
        refuse(f"{name} is a link to another place, which is not read")
    return group[name]


def _stored(group: h5py.Group, name: str, depth: int = 0) -> Stored:
    import h5py

    node = _own_member(group, name)
    if isinstance(node, h5py.Group):
        if depth == DEEPEST:
            refuse(f"it has more than {DEEPEST} groups in each other")
        return {key.removeprefix("_index_"): _stored(node, key, depth + 1) for key in node}
    if not isinstance(node, h5py.Dataset) or node.external or node.is_virtual:
        refuse(f"{name} has its values in another file, which is not read")
    if node.size is None or node.size * node.dtype.itemsize > EPISODE_BYTES:
        refuse(f"{name} takes more than the {EPISODE_BYTES // MIB} MiB that are read")
    if h5py.check_string_dtype(node.dtype):
        return node.asstr(errors="replace")[()]
    return node[()]


def _in_arrow(data: DataSet, keys: Collection[str] | None) -> Iterator[Found]:
    folders = [path for path in data.folder.iterdir() if path.name.isdecimal() and path.is_dir()]
    for folder in sorted(folders, key=lambda path: int(path.name)):
        yield str(folder), partial(_steps_of_arrow, data, folder, keys)


def _steps_of_arrow(data: DataSet, folder: Path, keys: Collection[str] | None) -> ColumnSteps:
    import pyarrow as pa

    try:
        files = sorted(path for path in folder.iterdir() if path.suffix == f".{data.form}" and path.is_file())
        if not files:
            refuse(f"it has no .{data.form} file")
        if sum(file.stat().st_size for file in files) > EPISODE_BYTES:
            refuse(f"it takes more than the {EPISODE_BYTES // MIB} MiB that are read")
        table = pa.concat_tables([_table(file, data.form) for file in files])
        table.validate(full=True)
        names = set(table.column_names)
        return _steps(data, lambda name: _of_arrow(table[name].combine_chunks()) if name in names else None, keys)
    except (OSError, pa.ArrowException) as error:
        raise ValueError(f"it is damaged: {error}") from error


def _table(file: Path, form: str) -> pa.Table:
    import pyarrow as pa
    from pyarrow import parquet

    if form == "parquet":
        with parquet.ParquetFile(file, pre_buffer=False) as opened:
            schema, batches, size = opened.schema_arrow, list[pa.RecordBatch](), 0
            for batch in batches_of(file, opened, schema.names):
                size += batch.nbytes
                if size > EPISODE_BYTES:
                    refuse(f"it takes more than the {EPISODE_BYTES // MIB} MiB that are read")
                batches.append(batch)
            return pa.Table.from_batches(batches, schema)
    with pa.OSFile(str(file)) as stream:
        return pa.ipc.open_file(stream).read_all()


def _of_arrow(column: pa.Array, depth: int = 0) -> Stored:
    from pyarrow import types

    if types.is_struct(column.type):
        if depth == DEEPEST:
            refuse(f"it has more than {DEEPEST} columns in each other")
        return {field.name: _of_arrow(column.field(index), depth + 1) for index, field in enumerate(column.type)}
    if types.is_fixed_size_list(column.type) and not column.null_count and not column.type.value_type.num_fields:
        size: int = column.type.list_size
        return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), size)
    if column.null_count or not (types.is_primitive(column.type)):
        return column.to_pylist()
    return column.to_numpy(zero_copy_only=False)
