"""The CEL rules of the CustomResourceDefinition, evaluated: what the API server itself refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import celpy  # evaluates the rules as the API server would
import pytest

from reef.api.schema import Schema, custom_resource_definition

DOCUMENT = custom_resource_definition({})["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def rules(schema: Schema, path: str = "") -> Iterator[tuple[str, str]]:
    yield from ((path, rule["rule"]) for rule in schema.get("x-kubernetes-validations", ()))
    for name, field in schema.get("properties", {}).items():
        yield from rules(field, f"{path}.{name}")
    for inner, suffix in (("items", "[]"), ("additionalProperties", ".*")):
        if isinstance(schema.get(inner), dict):
            yield from rules(schema[inner], path + suffix)


def accepted(path: str, value: Any, old: Any = None) -> bool:
    """Whether all rules at `path` accept `value`; those about a change only where there is an `old` one."""
    environment = celpy.Environment()
    found = [rule for place, rule in rules(DOCUMENT) if place == path and (old is not None or "oldSelf" not in rule)]
    assert found
    values = {"self": celpy.json_to_cel(value)} | ({"oldSelf": celpy.json_to_cel(old)} if old is not None else {})
    return all(environment.program(environment.compile(rule)).evaluate(values) for rule in found)


BASE = {"algorithm": "PPO", "environment": {"name": "E"}}
STORED = {"checkpoint": {"storage": {"uri": "s3://a/b"}}}


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("", {"metadata": {"name": "j" * 52}, "spec": {}}, True),
        ("", {"metadata": {"name": "j" * 53}, "spec": {}}, False),
        ("", {"metadata": {"name": "j" * 50}, "spec": {"workers": [{"name": "p" * 6}]}}, True),
        ("", {"metadata": {"name": "j" * 50}, "spec": {"workers": [{"name": "p" * 7}]}}, False),
        (".spec.checkpoint.storage", {"uri": "s3://a/b", "secretRef": {}}, True),
        (".spec.checkpoint.storage", {"persistentVolumeClaim": {}}, True),
        (".spec.checkpoint.storage", {}, False),
        (".spec.checkpoint.storage", {"uri": "s3://a/b", "persistentVolumeClaim": {}}, False),
        (".spec.checkpoint.storage", {"persistentVolumeClaim": {}, "secretRef": {}}, False),
        (".spec.workers[]", {"name": "a", "minReplicas": 1}, True),
        (".spec.workers[]", {"name": "a", "minReplicas": 2}, False),
        (".spec.workers[]", {"name": "a", "minReplicas": 2, "replicas": 2}, True),
        (".spec.workers[]", {"name": "head"}, False),
    ],
)
def test_a_new_document(path: str, value: Any, expected: bool) -> None:
    assert accepted(path, value) is expected


@pytest.mark.parametrize(
    ("changes", "before", "expected"),
    [
        ({}, {}, True),
        ({"suspend": True, "replicas": 3}, {}, True),
        ({"algorithm": "DQN"}, {}, False),
        ({"environment": {"name": "F"}}, {}, False),
        ({"restoreFrom": "x"}, {}, False),
        ({}, {"restoreFrom": "x"}, False),
        ({"restoreFrom": "x"}, {"restoreFrom": "x"}, True),
        ({"checkpoint": {"frequency": 2}}, {}, True),
        ({}, {"checkpoint": {"frequency": 2}}, True),
        (STORED, STORED, True),
        (STORED, {}, False),
        ({}, STORED, False),
        ({"checkpoint": {"frequency": 2}}, STORED, False),
        ({"checkpoint": {"storage": {"uri": "s3://a/c"}}}, STORED, False),
    ],
)
def test_a_change_of_a_document(changes: dict[str, Any], before: dict[str, Any], expected: bool) -> None:
    assert accepted(".spec", BASE | changes, BASE | before) is expected
