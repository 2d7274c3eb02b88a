"""Files of control groups, of both versions, and where there are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from reef.container import cpu_quota, memory_bytes, memory_kills


@pytest.mark.parametrize(("text", "expected"), [("200000 100000", 2.0), ("50000 100000", 0.5), ("max 100000", None)])
def test_a_quota_is_a_number_of_cpus(text: str, expected: float | None, tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text(text)
    assert cpu_quota([tmp_path / "missing", tmp_path / "cpu.max"]) == expected


@pytest.mark.parametrize(("quota", "expected"), [("300000\n", 3.0), ("-1\n", None)])
def test_older_quotas_have_their_period_beside_them(quota: str, expected: float | None, tmp_path: Path) -> None:
    (tmp_path / "cpu.cfs_quota_us").write_text(quota)
    (tmp_path / "cpu.cfs_period_us").write_text("100000\n")
    assert cpu_quota([tmp_path / "missing", tmp_path / "cpu.cfs_quota_us"]) == expected


def test_memory_is_the_limit_or_all_of_the_machine(tmp_path: Path) -> None:
    whole = memory_bytes([])
    assert 1 << 28 < whole < 1 << 50
    for text, expected in (("268435456\n", 1 << 28), ("max\n", whole), (f"{1 << 62}\n", whole)):
        (tmp_path / "memory.max").write_text(text)
        assert memory_bytes([tmp_path / "missing", tmp_path / "memory.max"]) == expected


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("low 0\noom 3\noom_kill 2\noom_group_kill 1\n", 2),
        ("oom_kill_disable 1\nunder_oom 0\noom_kill 5\n", 5),
        ("", 0),
    ],
)
def test_kills_are_counted_by_both_versions(text: str, count: int, tmp_path: Path) -> None:
    (tmp_path / "events").write_text(text)
    assert memory_kills([tmp_path / "missing", tmp_path / "events"]) == count
