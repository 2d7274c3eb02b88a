"""What the head does in its own process, without Ray."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from reef.api.runtime_env import RuntimeEnv
from reef.errors import ConfigError
from reef.job.head import take_runtime_env


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
