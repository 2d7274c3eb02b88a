"""The CustomResourceDefinition is structural and says what the models say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from reef.api.schema import Schema, custom_resource_definition, editor_schema, structural

SETTINGS: dict[str, Schema] = {
    "lr": {"description": "Learning rate.", "anyOf": [{"type": "number"}, {"type": "array", "items": {}}]},
    "gamma": {"description": "Discount.", "type": "number", "maximum": 1.0, "exclusiveMinimum": 0.0, "default": 0.99},
    "grad_clip": {"description": "Clip.", "anyOf": [{"type": "number"}, {"type": "null"}]},
    "model": {
        "description": "Model.",
        "type": "object",
        "properties": {"dim": {"description": "d", "type": "integer"}},
    },
}
CRD = custom_resource_definition(SETTINGS)
VERSION = CRD["spec"]["versions"][0]
DOCUMENT = VERSION["schema"]["openAPIV3Schema"]


def nodes(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    yield path, schema
    for name, field in schema.get("properties", {}).items():
        yield from nodes(field, f"{path}.{name}")
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from nodes(schema["additionalProperties"], f"{path}.*")


def test_every_node_has_a_type_and_nothing_a_structural_schema_forbids() -> None:
    forbidden = {"$ref", "$defs", "anyOf", "oneOf", "const", "title", "default", "exclusiveMin", "prefixItems"}
    for path, node in nodes(DOCUMENT):
        untyped = node.keys() & {"x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields"}
        assert "type" in node or untyped, path
        assert not node.keys() & forbidden, path
        assert "additionalProperties" not in node or "properties" not in node, path
        for limit in ("exclusiveMinimum", "exclusiveMaximum"):
            assert isinstance(node.get(limit, True), bool), path


def test_mappings_with_free_keys_have_a_limit() -> None:
    """A document with a hundred thousand keys is refused by the API server, before anything has to read it."""
    free = {"x-kubernetes-preserve-unknown-fields", "additionalProperties"}
    limits = {path: node.get("maxProperties") for path, node in nodes(DOCUMENT) if node.keys() & free}
    named = {path: limits.pop(path) for path in (".spec.stop", ".spec.tune.parameters")}
    assert named == {".spec.stop": 64, ".spec.tune.parameters": 64}
    assert {".spec.config", ".spec.config.lr", ".spec.environment.config", ".spec.runtimeEnv"} <= limits.keys()
    assert set(limits.values()) == {1000}


def test_rules_name_only_fields_that_cel_sees() -> None:
    """CEL knows no field whose items have no type: a rule that names one keeps the whole definition out."""
    for path, node in nodes(DOCUMENT):
        for rule in node.get("x-kubernetes-validations", ()):
            unseen = [name for name, field in node.get("properties", {}).items() if not seen_by_cel(field)]
            assert not [name for name in unseen if f"self.{name}" in rule["rule"]], path


def seen_by_cel(field: Schema) -> bool:
    """Whether the field has a type, down to the items of a list."""
    items = field.get("items") or field.get("additionalProperties")
    return ("type" in field or "x-kubernetes-int-or-string" in field) and (items is None or seen_by_cel(items))


def test_every_field_is_described() -> None:
    undescribed = [path for path, node in nodes(DOCUMENT) if path[-1:] not in ("]", "*") and "description" not in node]
    assert undescribed == [".metadata"]  # described by the API server itself


def test_the_document_says_its_defaults_and_the_status_has_none() -> None:
    described = {path: node["description"] for path, node in nodes(DOCUMENT) if "description" in node}
    for path, default in {
        ".spec.suspend": "false",
        ".spec.checkpoint.keep": "3",
        ".spec.checkpoint.scoreAttribute": "training_iteration",
        ".spec.faultTolerance.noRetryExitCodes": "[2]",
        ".spec.workers[].replicas": "1",
        ".spec.cleanup.workerDelaySeconds": "0",
    }.items():
        assert described[path].endswith(f". Default: {default}."), described[path]
    said = {path for path, text in described.items() if "Default:" in text}
    assert not {".spec.image", ".spec.workers", ".spec.restoreFrom", ".spec.workers[].minReplicas"} & said
    assert all(path.startswith(".spec.") and described[path].count("efault") == 1 for path in said)


def test_settings_are_typed_and_unknown_ones_are_left_for_the_head_to_name() -> None:
    config = DOCUMENT["properties"]["spec"]["properties"]["config"]
    assert config["x-kubernetes-preserve-unknown-fields"] is True
    assert config["properties"] == {
        "gamma": {
            "description": "Discount.",
            "type": "number",
            "maximum": 1.0,
            "minimum": 0.0,
            "exclusiveMinimum": True,
        },
        "grad_clip": {"description": "Clip.", "type": "number", "nullable": True},
        "lr": {"description": "Learning rate.", "x-kubernetes-preserve-unknown-fields": True, "maxProperties": 1000},
        "model": {
            "description": "Model.",
            "type": "object",
            "properties": {"dim": {"description": "d", "type": "integer"}},
            "x-kubernetes-preserve-unknown-fields": True,
            "maxProperties": 1000,
        },
    }


def test_quantities_may_be_numbers_or_texts() -> None:
    requests = DOCUMENT["properties"]["spec"]["properties"]["head"]["properties"]["resources"]["properties"]["requests"]
    assert requests["additionalProperties"]["x-kubernetes-int-or-string"] is True


def test_pools_are_a_map_by_name_and_pod_templates_are_free() -> None:
    workers = DOCUMENT["properties"]["spec"]["properties"]["workers"]
    assert workers["x-kubernetes-list-map-keys"] == ["name"]
    template = workers["items"]["properties"]["template"]
    assert template["x-kubernetes-preserve-unknown-fields"] is True


def test_columns_and_subresources_lead_to_fields_that_exist() -> None:
    known = {path for path, _ in nodes(DOCUMENT)} | {".metadata.creationTimestamp"}
    paths = [column["jsonPath"] for column in VERSION["additionalPrinterColumns"]]
    assert set(paths) <= known
    assert set(VERSION["subresources"]["scale"].values()) <= known
    assert CRD["spec"]["names"]["shortNames"] == ["rlj"]


def test_rules_speak_of_fields_that_exist() -> None:
    """Only what follows `self` and `oldSelf`; all of it is compiled by a real server in tests/cluster."""
    known = {path for path, _ in nodes(DOCUMENT)} | {".metadata.name"}
    found = [(path, rule) for path, node in nodes(DOCUMENT) for rule in node.get("x-kubernetes-validations", ())]
    for path, rule in found:
        named = re.findall(r"\b(?:self|oldSelf)((?:\.\w+)+)(?!\w*\()", rule["rule"])
        assert named, rule
        assert {path + field for field in named} <= known, rule
    rules = [rule for _, rule in found]
    assert len(rules) >= 10
    assert all(rule.keys() == {"rule", "message"} for rule in rules)
    fixes = ("add", "create", "delete", "give the", "lower", "raise", "remove", "set", "shorten")
    assert all(any(fix in rule["message"] for fix in fixes) for rule in rules), "what a person is to do"


def test_it_stays_below_the_limit_of_client_side_apply() -> None:
    assert len(json.dumps(CRD)) < 100 * 1024  # of 256 KiB; the settings of all algorithms come on top


def test_a_union_that_has_no_structural_form_accepts_anything() -> None:
    assert structural({"anyOf": [{"type": "boolean"}, {"type": "string"}]}, {}) == {
        "x-kubernetes-preserve-unknown-fields": True,
        "maxProperties": 1000,
    }
    assert structural({"type": ["string", "null"]}, {}) == {"type": "string", "nullable": True}


@pytest.mark.parametrize("example", ["cartpole-ppo.yaml", "kubernetes-gpu.yaml"])
def test_the_editor_schema_accepts_the_examples(example: str) -> None:
    any_setting: Any = editor_schema({})
    any_setting["$defs"]["JobSpec"]["properties"]["config"]["additionalProperties"] = True
    text = (Path(__file__).parents[3] / "examples" / example).read_text()
    Draft202012Validator(any_setting).validate(yaml.safe_load(text))


def test_the_editor_schema_refuses_misspelt_settings_and_fields() -> None:
    document = {
        "apiVersion": "reef.dev/v1",
        "kind": "RLTrainingJob",
        "metadata": {"name": "job"},
        "spec": {
            "algorithm": "PPO",
            "environment": {"name": "E"},
            "stop": {"training_iteration": 1},
            "config": {"gama": 1},
            "suspnd": True,
        },
    }
    messages = " ".join(error.message for error in Draft202012Validator(editor_schema(SETTINGS)).iter_errors(document))
    assert "gama" in messages
    assert "suspnd" in messages
