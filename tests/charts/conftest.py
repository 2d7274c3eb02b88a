"""The chart, rendered by the real Helm library, and Prometheus' own tools."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import helm_python
import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))
import prometheus
from kube.progress import ClusterError

CHART = Path(__file__).parents[2] / "charts" / "reef"

Objects = list[dict[str, Any]]


@pytest.fixture(scope="session")
def chart_folder() -> Path:
    return CHART


@pytest.fixture(scope="session")
def files(chart_folder: Path) -> Callable[..., dict[str, str]]:
    """`files(**values)`: what Helm makes of every template."""

    def render(namespace: str = "reef-system", name: str = "reef", **values: Any) -> dict[str, str]:
        with helm_python.Chart.load(chart_folder) as chart:
            return chart.render(values, name=name, namespace=namespace)

    return render


@pytest.fixture(scope="session")
def render(files: Callable[..., dict[str, str]]) -> Callable[..., Objects]:
    """`render(**values)`: all objects."""

    def objects(**values: Any) -> Objects:
        texts = [text for path, text in sorted(files(**values).items()) if path.endswith((".yaml", ".yml"))]
        return [found for text in texts for found in yaml.safe_load_all(text) if found is not None]

    return objects


@pytest.fixture(scope="session")
def promtool() -> str:
    return program("promtool")


@pytest.fixture(scope="session")
def prometheus_program() -> str:
    return program("prometheus")


def program(name: str) -> str:
    """That of this machine, else that of the tests' own Prometheus."""
    try:
        return shutil.which(name) or str(prometheus.program(name))
    except ClusterError as reason:
        pytest.skip(f"{name} is not there, nor can it be had: {reason}")
