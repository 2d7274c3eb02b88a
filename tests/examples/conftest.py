"""`example(name)`: what a program of examples/ defines, without running it."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="session")
def example() -> Callable[[str], dict[str, Any]]:
    return lambda name: runpy.run_path(str(FOLDER / f"{name}.py"))
