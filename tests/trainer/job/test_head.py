"""What the head does in its own process, without Ray."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from reef.api.runtime_env import RuntimeEnv
from reef.api.status import TrialsStatus
from reef.errors import ConfigError
from reef.job.head import linger, take_runtime_env
from reef.job.progress import JobBoard


@pytest.fixture
def own_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables and import path are as before after the test."""
    monkeypatch.setattr(os, "environ", os.environ.copy())
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.mark.usefixtures("own_process")
def test_the_head_finds_code_as_its_workers_do(tmp_path: Path) -> None:
    package = tmp_path / "packages" / "own_module"
    package.mkdir(parents=True)
    take_runtime_env(RuntimeEnv(env_vars={"A": "1"}, working_dir=str(tmp_path), py_modules=[str(package)]))
    assert os.environ["A"] == "1"
    assert sys.path[:2] == [str(tmp_path), str(package.parent)]


def test_a_folder_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match=r"spec.runtimeEnv.py_modules\[0\]: '/none' is no folder of the head pod"):
        take_runtime_env(RuntimeEnv(py_modules=["/none"]))


@pytest.mark.parametrize(
    ("code", "begun", "lingers"),
    [(0, True, True), (2, True, True), (7, True, True), (1, True, False), (143, True, False), (2, False, False)],
)
def test_a_head_lingers_after_an_end_that_is_final_when_there_is_something_to_see(
    monkeypatch: pytest.MonkeyPatch, code: int, begun: bool, lingers: bool
) -> None:
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    monkeypatch.setenv("REEF_LINGER_SECONDS", "30")
    board = JobBoard()
    board.final_codes = (0, 2, 7)
    if begun:
        board.swept(None, TrialsStatus(total=1))
    linger(code, board)
    assert slept == ([30.0] if lingers else [])
