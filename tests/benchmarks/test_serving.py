"""The measurement of `reef serve`, in short."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.serving import main
from finished import checkpoint_of, ppo


def test_both_servers_are_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([checkpoint_of(ppo(), tmp_path / "c"), "--clients", "2", "--seconds", "0.1"])
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("reef serve ") and " per second, median " in first
    assert second.startswith("aiohttp echo ")
