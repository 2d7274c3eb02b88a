"""What the end of a Parquet file says about its size is what pyarrow says."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from reef.offline.parquet_footer import step_bytes

COLUMNS: dict[str, Any] = {
    "flat": np.arange(20),
    "lists": pa.FixedSizeListArray.from_arrays(np.zeros(60), 3),
    "nested": [[[True] * 2] * 5] * 20,
    "parts": [{"a": 1, "b": [0.5, 1.5]}] * 20,
    "text": ["x" * 1000] * 20,
}


@pytest.mark.parametrize(
    ("columns", "numbers"), [(["flat"], 1), (["lists"], 3), (["nested"], 10), (["parts"], 3), (["flat", "lists"], 4)]
)
@pytest.mark.parametrize("groups", [1, 4, 20])
def test_numbers_of_a_step_are_counted(columns: list[str], numbers: int, groups: int, tmp_path: Path) -> None:
    metadata = {b"note": b"y" * 300}
    table = pa.table(COLUMNS).replace_schema_metadata(metadata)
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=20 // groups, write_page_index=True)
    assert step_bytes(tmp_path / "a.parquet", columns) == (numbers * 8, numbers * 8)


def test_of_texts_their_share_is_counted_and_all_that_are_unpacked(tmp_path: Path) -> None:
    parquet.write_table(pa.table(COLUMNS), tmp_path / "a.parquet")
    mean, most = step_bytes(tmp_path / "a.parquet", ["text"])
    assert 1000 < most < 5000, "it is stored once"
    assert mean == most // 20
    parquet.write_table(pa.table(COLUMNS), tmp_path / "a.parquet", use_dictionary=False)
    assert 1000 < step_bytes(tmp_path / "a.parquet", ["text"]).mean < 1200


def test_the_largest_group_counts(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"x": [[1]] * 5 + [[1] * 100] * 5}), tmp_path / "a.parquet", row_group_size=5)
    assert step_bytes(tmp_path / "a.parquet", ["x"]) == (800, 800)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"\x10\0\0\0PAR1", b"\xff\xff\xff\xffPAR1", b"x" * 100])
def test_what_is_no_parquet_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(content)
    with pytest.raises(ValueError, match="it is no Parquet, perhaps cut off"):
        step_bytes(tmp_path / "a.parquet", ["x"])


def test_a_description_beyond_all_measure_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet.write_table(pa.table(COLUMNS), tmp_path / "a.parquet")
    monkeypatch.setattr("reef.offline.parquet_footer.LONGEST", 100)
    with pytest.raises(ValueError, match="its description has .* bytes, more than the 100 that are read"):
        step_bytes(tmp_path / "a.parquet", ["x"])


def test_any_bytes_end_in_a_number_or_a_refusal(tmp_path: Path) -> None:
    parquet.write_table(pa.table(COLUMNS), tmp_path / "a.parquet")
    whole = (tmp_path / "a.parquet").read_bytes()
    length = int.from_bytes(whole[-8:-4], "little")
    draw = random.Random(0)
    for _ in range(300):
        changed = bytearray(whole)
        for _ in range(draw.randint(1, 20)):
            changed[-9 - draw.randrange(length)] = draw.randrange(256)
        (tmp_path / "b.parquet").write_bytes(changed)
        try:
            assert isinstance(step_bytes(tmp_path / "b.parquet", COLUMNS).mean, int)
        except ValueError as error:
            assert "it is no Parquet" in str(error)
