"""`--set PATH=VALUE`."""

from __future__ import annotations

from typing import Any

import pytest

from reef.cli.document.overrides import apply_overrides
from reef.errors import ConfigError

DOCUMENT: dict[str, Any] = {
    "metadata": {"name": "a"},
    "spec": {"config": {"lr": 1.0, "model": None}, "stop": {"training_iteration": 3}, "workers": [{"name": "cpu"}]},
}


@pytest.mark.parametrize(
    ("assignment", "path", "value"),
    [
        ("config.lr=1e-4", ("spec", "config", "lr"), 1e-4),
        ("spec.config.lr=[[0, 1.0], [9, 0.1]]", ("spec", "config", "lr"), [[0, 1.0], [9, 0.1]]),
        ("config.model.fcnet_hiddens=[32]", ("spec", "config", "model", "fcnet_hiddens"), [32]),
        ("stop.evaluation/episode_reward_mean=5", ("spec", "stop", "evaluation/episode_reward_mean"), 5),
        ("checkpoint.frequency=1", ("spec", "checkpoint", "frequency"), 1),
        ("workers[0].replicas=2", ("spec", "workers", 0, "replicas"), 2),
        ("workers.0.name=x=y", ("spec", "workers", 0, "name"), "x=y"),
        ("metadata.name=b", ("metadata", "name"), "b"),
        ("restoreFrom=", ("spec", "restoreFrom"), None),
    ],
)
def test_a_value_is_put_at_its_path(assignment: str, path: tuple[str | int, ...], value: object) -> None:
    found: Any = apply_overrides(DOCUMENT, [assignment])
    for key in path:
        found = found[key]
    assert found == value
    assert type(found) is type(value)


def test_the_document_is_left_alone_and_later_assignments_win() -> None:
    changed = apply_overrides(DOCUMENT, ["config.lr=2", "config.lr=3"])
    assert changed["spec"]["config"]["lr"] == 3
    assert DOCUMENT["spec"]["config"]["lr"] == 1.0


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("config.lr", "expected PATH=VALUE"),
        ("=3", "expected PATH=VALUE"),
        ("config.lr.x=3", "spec.config.lr is 1.0, so that there is no 'x' in it"),
        ("workers[1].replicas=3", "spec.workers has 1 items"),
        ("workers.cpu.replicas=3", "spec.workers has 1 items"),
        ("config.lr=[1", "is no value"),
    ],
)
def test_an_assignment_that_leads_nowhere_is_refused(assignment: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        apply_overrides(DOCUMENT, [assignment])
    assert expected in str(caught.value)


def test_a_document_that_is_no_mapping_is_refused() -> None:
    with pytest.raises(ConfigError, match="the document is"):
        apply_overrides("text", ["config.lr=1"])
