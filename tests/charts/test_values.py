"""What may be set: every value is described, in the schema, and refused when it is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import helm_python
import pytest
import yaml

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"imagee": {}}, "imagee"),
    ({"image": {"tagg": "1"}}, "tagg"),
    ({"image": {"tag": 1}}, "/image/tag"),
    ({"trainerImage": {"digest": "latest"}}, "/trainerImage/digest"),
    ({"image": {"pullPolicy": "Sometimes"}}, "/image/pullPolicy"),
    ({"trainerImage": {"repository": ""}}, "/trainerImage/repository"),
    ({"crds": {"installed": True}}, "installed"),
    ({"kubeVersion": "new"}, "/kubeVersion"),
    ({"imagePullSecrets": ["registry"]}, "/imagePullSecrets/0"),
    ({"watch": {"allNamespaces": "yes"}}, "/watch/allNamespaces"),
    ({"watch": {"allNamespaces": False, "namespaces": ["Team_A"]}}, "/watch/namespaces/0"),
    ({"watch": {"namespaces": ["a", "a"]}}, "/watch/namespaces"),
    ({"watch": {"namespaces": ["team-a"]}}, "set watch.allNamespaces=false"),
    ({"watch": {"allNamespaces": False, "namespaces": ["team-a", "reef-system"]}}, "in a namespace of its own"),
    ({"templates": {"forbid": ["hostpath"]}}, "/templates/forbid/0"),
    ({"operator": {"replicas": "1"}}, "/operator/replicas"),
    ({"operator": {"replicas": -1}}, "/operator/replicas"),
    ({"operator": {"logLevel": "loud"}}, "/operator/logLevel"),
    ({"operator": {"lingerSeconds": 1.5}}, "/operator/lingerSeconds"),
    ({"operator": {"lingerSeconds": -1}}, "/operator/lingerSeconds"),
    ({"operator": {"preRunningDeadlineSeconds": 0}}, "/operator/preRunningDeadlineSeconds"),
    ({"operator": {"podLabels": {"a": 1}}}, "/operator/podLabels/a"),
    ({"operator": {"resources": {"request": {}}}}, "request"),
    ({"operator": {"livenessProbe": {"exec": {}}}}, "exec"),
    ({"serviceAccount": {"create": False}}, "serviceAccount.name is needed"),
    ({"podDisruptionBudget": {"maxUnavailable": "one"}}, "/podDisruptionBudget/maxUnavailable"),
    ({"networkPolicy": {"apiServerPorts": []}}, "/networkPolicy/apiServerPorts"),
    ({"ingress": {"class": "nginx"}}, "class"),
    ({"ingress": {"className": "Nginx"}}, "/ingress/className"),
    ({"ingress": {"annotations": {"size": 16}}}, "/ingress/annotations/size"),
    ({"ingress": {"from": [{}]}}, "/ingress/from/0"),
    ({"ingress": {"enabled": True}}, "ingress.from is empty"),
    ({"monitoring": {"podMonitor": {"interval": "15"}}}, "/monitoring/podMonitor/interval"),
    ({"monitoring": {"serviceMonitor": {"labels": {}}}}, "labels"),
    ({"monitoring": {"prometheusRule": {"runbookUrl": ""}}}, "/monitoring/prometheusRule/runbookUrl"),
]


@pytest.mark.parametrize(("values", "named"), WRONG, ids=[named for _, named in WRONG])
def test_a_wrong_value_is_refused_by_its_name(render: Callable[..., Any], values: dict[str, Any], named: str):
    with pytest.raises(helm_python.HelmError) as refusal:
        render(**values)
    assert named.strip("/") in str(refusal.value).replace(".", "/") or named in str(refusal.value)


def places(value: Any, place: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, f"{place}.{key}")
    if place:
        yield place


def resolved(schema: dict[str, Any], whole: dict[str, Any]) -> dict[str, Any]:
    return whole["definitions"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def described(schema: dict[str, Any], whole: dict[str, Any], place: str = "") -> Iterator[str]:
    found = resolved(schema, whole)
    if "properties" in found:
        assert found.get("additionalProperties") is False, f"{place}: a misspelt key would pass"
    for key, inner in found.get("properties", {}).items():
        yield from described(inner, whole, f"{place}.{key}")
    if place:
        yield place


def test_every_value_is_in_the_schema_and_the_other_way_round(chart_folder: Path):
    schema = json.loads((chart_folder / "values.schema.json").read_text())
    values = yaml.safe_load((chart_folder / "values.yaml").read_text())
    known = set(described(schema, schema))
    free = (".operator.resources.", ".monitoring.dashboards.labels.")  # a person's own keys
    assert {place for place in places(values) if not place.startswith(free)} <= known
    optional = {".global", ".operator.resources.requests", ".operator.resources.limits", ".operator.resources.claims"}
    missing = known - set(places(values)) - optional
    assert {place for place in missing if not place.endswith(".initialDelaySeconds")} == set()


def leaves(node: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.MappingNode) and node.value:
        for _, inner in node.value:
            yield from leaves(inner)
    else:
        yield node


def test_values_can_be_read_in_one_go_and_each_has_a_comment(chart_folder: Path):
    text = (chart_folder / "values.yaml").read_text()
    lines = text.splitlines()
    assert len(lines) <= 250
    numbers = [leaf.start_mark.line for leaf in leaves(yaml.compose(text))]
    assert len(numbers) > 60
    for number in numbers:
        above = lines[number - 1].lstrip().startswith("#")
        assert " # " in lines[number] or above, f"no comment: {lines[number]}"
