"""The Python below which workers of Ray are forks."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from forked_workers import CONTEXT

pytestmark = pytest.mark.ray


def test_it_is_the_python_of_what_it_starts(ray_python: Path) -> None:
    found = subprocess.run(
        [ray_python, "-c", "import reef, sys; print(sys.executable)"], capture_output=True, text=True, timeout=60
    )
    assert found.stdout.split() == [str(ray_python)], found.stderr


def test_a_worker_whose_variables_are_read_before_a_fork_is_set_up_by_ray(ray_python: Path, tmp_path: Path) -> None:
    program = tmp_path / "setup_worker.py"
    program.write_text("print('by Ray')")
    context = {"env_vars": {"OMP_NUM_THREADS": "2"}, "py_executable": str(ray_python), "command_prefix": []}
    command = [ray_python, program, CONTEXT + json.dumps(context)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.returncode) == ("by Ray\n", 0), done.stderr
