"""The measurement of reading recorded episodes works, on few of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from benchmarks import reading


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "WINDOW_BYTES", 2**16)
    monkeypatch.setattr(reading, "BATCH", 20)


@pytest.mark.parametrize("kind", reading.KINDS)
def test_all_ways_read_what_was_generated(kind: str, tmp_path: Path) -> None:
    rows = reading.generate(tmp_path, kind, 1e5)
    for name in reading.PASSES:
        found = reading.timed(name, tmp_path, kind, rows)
        assert found["rows"] >= rows
        assert len(found["memory_mb"]) > 1


def test_it_prints_a_line_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["reading", "--gb", "0.0001", "--turns", "1", "--folder", str(tmp_path)])
    monkeypatch.setattr(reading, "in_process", lambda name, folder, kind, rows: reading.timed(name, folder, kind, rows))
    assert reading.main() == 0
    assert "1.00 of pyarrow alone" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["reading", "--folder", str(tmp_path / "missing")])
    with pytest.raises(SystemExit) as ended:
        reading.main()
    assert ended.value.code == 2
    assert "missing' is not an existing folder" in capsys.readouterr().err
