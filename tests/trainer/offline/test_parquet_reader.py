"""Parquet is read as columns, a bounded part at a time."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from reef.offline import parquet_reader
from reef.offline.parquet_reader import batches_of, parquet_episodes, values_of
from reef.offline.steps import ColumnSteps, EpisodeGroup, one_by_one


def steps_in(file: Path, keys: Any = None, names: Any = None) -> list[ColumnSteps]:
    return [steps() for _, steps in one_by_one(parquet_episodes(file, keys, names))]


@pytest.mark.parametrize(
    ("values", "shape"),
    [
        (pa.array([1, 2]), (2,)),
        (pa.array([True, False]), (2,)),
        (pa.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]).slice(1), (2, 2)),
        (pa.array([[[1], [2]]], pa.list_(pa.list_(pa.uint8(), 1))), (1, 2, 1)),
        (pa.array([[1.0], [2.0]], pa.large_list(pa.float32())), (2, 1)),
        (pa.array([[], []], pa.list_(pa.float64())), (2, 0)),
    ],
)
def test_numbers_of_one_shape_are_an_array(values: pa.Array, shape: tuple[int, ...]) -> None:
    found = values_of(values)
    assert isinstance(found, np.ndarray)
    assert found.shape == shape
    assert found.tolist() == values.to_pylist()


@pytest.mark.parametrize(
    "values",
    [
        pa.array([[1], [2, 3]]),
        pa.array([[1], None]),
        pa.array([[1], [None]]),
        pa.array([1, None]),
        pa.array(["a"]),
        pa.array([{"a": [1]}]),
        pa.nulls(2),
    ],
)
def test_other_values_are_a_list(values: pa.Array) -> None:
    assert values_of(values) == values.to_pylist()


def test_only_what_is_asked_for_is_read(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"episode": [1], "obs": [2], "info": ["x"]}), tmp_path / "a.parquet")
    (steps,) = steps_in(tmp_path / "a.parquet", ("obs", "reward"))
    assert list(steps.columns) == ["obs"]


@pytest.mark.parametrize("rows", [1, 3, 4, 100])
def test_an_episode_may_lie_in_several_parts(rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reef.offline.parquet_reader.ROWS", rows)
    numbers = [1] * 2 + [2] * 7 + [3]
    table = pa.table({"episode": numbers, "obs": [[n] for n in range(10)], "terminated": [False] * 10})
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=4)
    episodes = steps_in(tmp_path / "a.parquet")
    assert [[obs for (obs,) in steps.columns["obs"]] for steps in episodes] == [[0, 1], [*range(2, 9)], [9]]


def test_a_data_set_that_is_larger_than_the_memory_is_read(tmp_path: Path) -> None:
    """200 MB of observations, with less than 80 MB beside what a process has that has read one episode."""
    script = f"""
        from pathlib import Path
        import numpy as np, pyarrow as pa
        from gymnasium import spaces
        from pyarrow import parquet
        from reef.envs.wrappers import RewardTransform
        from reef.offline.episodes import EpisodeReader
        from reef.spaces import Layout

        def peak():
            status = Path("/proc/self/status").read_text()
            return int(status.partition("VmHWM:")[2].split()[0]) // 1024

        size, length, file = 20_000, 100, Path({str(tmp_path / "a.parquet")!r})
        flat = pa.array(np.tile(np.arange(size, dtype=np.uint8), length))
        obs = pa.FixedSizeListArray.from_arrays(flat, size)
        columns = {{key: obs for key in ("obs", "next_obs")}}
        columns |= {{key: np.ones(length, np.int64) for key in ("action", "reward")}}
        columns |= {{"terminated": np.arange(length) == length - 1, "truncated": np.zeros(length, np.bool_)}}
        with parquet.ParquetWriter(file, pa.table({{"episode": columns["action"], **columns}}).schema) as writer:
            for number in range(50):
                writer.write_table(pa.table({{"episode": np.full(length, number), **columns}}))
        box, act = Layout.of(spaces.Box(0, 255, (size,), np.uint8)), Layout.of(spaces.Discrete(2))
        reader = EpisodeReader(box, act, None, RewardTransform(None, atari=False))
        next(reader.read([file]))
        before, steps = peak(), 0
        for episode in reader.read([file]):
            assert episode.obs[-1, 0, 255] == 255
            steps += len(episode.rewards)
        assert steps * size * 2 == 200_000_000, steps
        print(peak() - before)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 80, "MiB"


def test_an_episode_is_as_large_as_its_own_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All texts of the file belong to one episode, not to each of its steps."""
    monkeypatch.setattr("reef.offline.parquet_reader.EPISODE_BYTES", 2**20)
    texts = [f"{n:0100}" for n in range(2000)]
    table = pa.table({"episode": [1] * 2000, "info": texts})
    parquet.write_table(table, tmp_path / "a.parquet")
    assert table.nbytes < 2**20 < 2000 * 200_000
    (steps,) = steps_in(tmp_path / "a.parquet")
    assert steps.columns["info"] == texts


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())])
def test_an_episode_may_be_named_by_any_kind_of_text(kind: pa.DataType, tmp_path: Path) -> None:
    """Polars writes large strings, pandas a dictionary of categories."""
    numbers = pa.array(["1", "1", "2"]).cast(kind)
    parquet.write_table(pa.table({"episode": numbers, "obs": [1, 2, 3]}), tmp_path / "a.parquet")
    found = list(one_by_one(parquet_episodes(tmp_path / "a.parquet")))
    assert [place.rpartition(" ")[2] for place, _ in found] == ["1", "2"]
    assert [steps().columns["obs"].tolist() for _, steps in found] == [[1, 2], [3]]  # type: ignore[union-attr]


def test_a_list_of_one_column_is_an_axis_of_one(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"id": [1, 1], "thrust": [0.5, 1.0]}), tmp_path / "a.parquet")
    for column, shape in (("thrust", (2,)), (["thrust"], (2, 1))):
        names = {"episode": "id", "obs": ["thrust"], "action": column, "next_obs": "thrust"}
        (steps,) = steps_in(tmp_path / "a.parquet", names=names)
        assert np.shape(steps.columns["action"]) == shape


def test_what_others_wrote_is_read_in_groups_where_it_has_successors(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"id": [1, 1, 2, 3], "x": [0, 1, 2, 3], "end": [0, 1, 1, 1]}), tmp_path / "a.parquet")
    names = {"episode": "id", "obs": "x", "next_obs": "x", "terminated": "end"}
    group, last = parquet_episodes(tmp_path / "a.parquet", names=names)
    assert isinstance(group, EpisodeGroup)
    assert group.numbers == [1, 2]
    (_, first), _ = group.each()
    assert first().columns["truncated"].tolist() == [False, False]
    assert not isinstance(last, EpisodeGroup), "it may go on in the next part"
    del names["next_obs"]
    assert [steps.columns["next_obs"].tolist() for steps in steps_in(tmp_path / "a.parquet", names=names)] == [
        [1, 1],
        [2],
        [3],
    ]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of the episodes with which the parts begin that were read so far; of two rows each."""
    begun: list[int] = []

    def counted(*args: Any) -> Iterator[pa.RecordBatch]:
        for batch in batches_of(*args):
            begun.append(batch["episode"][0].as_py())
            yield batch

    monkeypatch.setattr(parquet_reader, "ROWS", 2)
    monkeypatch.setattr(parquet_reader, "batches_of", counted)
    return begun


def test_a_thread_reads_a_part_ahead_and_ends_with_the_reader(read: list[int], tmp_path: Path) -> None:
    parquet.write_table(pa.table({"episode": [*range(10)], "obs": [*range(10)]}), tmp_path / "a.parquet")
    episodes = parquet_episodes(tmp_path / "a.parquet")
    next(episodes)
    episodes.close()  # type: ignore[attr-defined]
    assert read == [0, 2]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("parquet")]


def test_an_error_of_the_thread_is_that_of_the_reader(read: list[int], tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"episode": [1, 2, 3, None, 5], "obs": [*range(5)]}), file)
    group, (place, steps) = parquet_episodes(file)
    assert isinstance(group, EpisodeGroup)
    assert group.numbers == [1]
    assert place == str(file)
    with pytest.raises(ValueError, match="a row has no number of its episode"):
        steps()
    assert read == [1, 3]
