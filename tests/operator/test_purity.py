"""What is decided touches nothing: no network, no clock, no chance, so that the same input gives the same plan."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "operator" / "reef_operator"
PURE = [
    *(
        ROOT / f"{name}.py"
        for name in ("model", "names", "conditions", "phases", "status", "events", "cleanup", "reconcile")
    ),
    *sorted((ROOT / "builders").glob("*.py")),
    *sorted((ROOT / "reading").glob("*.py")),
]
OURS = ("reef.api", "reef.errors", "reef_operator")
IMPURE_MODULES = {"asyncio", "http", "io", "logging", "os", "pathlib", "random", "secrets", "socket", "subprocess"} | {
    "threading",
    "time",
    "uuid",
}
IMPURE_PACKAGES = ("reef_operator.connection", "reef_operator.runtime")
IMPURE_CALLS = {"now", "utcnow", "today", "open", "print"}


def impurities(source: str) -> Iterator[str]:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            first = name.split(".")[0]
            known = name.startswith(OURS) or first in sys.stdlib_module_names | {"yaml"}
            if not known or first in IMPURE_MODULES or name.startswith(IMPURE_PACKAGES):
                yield name
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in IMPURE_CALLS:
            yield ast.unparse(node.func)


@pytest.mark.parametrize("path", PURE, ids=lambda path: str(path.relative_to(ROOT)))
def test_pure(path: Path) -> None:
    assert list(impurities(path.read_text())) == []


@pytest.mark.parametrize(
    "source",
    [
        "import kopf",
        "import time",
        "from kubernetes import client",
        "from reef_operator.connection.client import Client",
        "from reef.config import loading",
        "datetime.now(UTC)",
        "open('x')",
    ],
)
def test_impurities_are_found(source: str) -> None:
    assert list(impurities(source))
