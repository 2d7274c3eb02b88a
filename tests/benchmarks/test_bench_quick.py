"""The speed benchmark runs from end to end, with the Reef side and the bare loop alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def bench(out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.speed", "--quick", "--out", str(out), *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)


@pytest.mark.slow
def test_quick_run_measures_reef_and_the_bare_loop(tmp_path: Path):
    done = bench(tmp_path, "--only", "sampling,store", "--peers", "reef,bare loop")
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    for case in ("reef", "bare loop"):
        (run,) = results["parts"]["sampling"]["cases"][case]["runs"]
        assert run["steps"] > 0
        assert run["seconds"] > 0
        assert run["peak_mb"] > 50
    text = (tmp_path / "RESULTS.md").read_text()
    assert "sampling alone, 128 environments" in text
    assert "quick run" in text


def test_unknown_part_is_refused(tmp_path: Path):
    done = bench(tmp_path, "--only", "ppoo")
    assert done.returncode == 2
    assert "ppoo" in done.stderr


def test_a_case_that_fails_is_named_and_the_exit_code_says_so(tmp_path: Path):
    head = {"date": "", "commit": "", "machine": {}, "load_before": "", "quick": False}
    results = {"parts": {"ppo": head | {"cases": {"reef, minibatch 128": {"runs": [], "error": "it broke"}}}}}
    (tmp_path / "results.json").write_text(json.dumps(results))
    done = bench(tmp_path, "--report", "--only", "ppo")
    assert done.returncode == 1
    assert "it broke" in done.stderr
