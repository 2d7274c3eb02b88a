"""Schemas of the job document: structural for the cluster's API server, JSON Schema for editors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from reef.api.fields import MAX_KEYS
from reef.api.job import GROUP, KIND, VERSION, RLTrainingJob

Schema = dict[str, Any]

# What a structural schema may say about a value, beside its type. `default` is left out: the API server would write
# it into every job, and a later version's defaults could then not reach them. Descriptions say it instead.
_KEPT = (
    "description", "enum", "format", "maxItems", "maxLength", "maxProperties", "maximum", "minItems", "minLength",
    "minProperties", "minimum", "pattern", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-validations",
)  # fmt: skip
_ANYTHING = {"x-kubernetes-preserve-unknown-fields": True, "maxProperties": MAX_KEYS}
_COLUMNS = [  # name, type, path, priority: 1 is shown by `kubectl get -o wide`
    ("Phase", "string", ".status.phase", 0),
    ("Algorithm", "string", ".spec.algorithm", 0),
    ("Environment", "string", ".spec.environment.name", 0),
    ("Iteration", "integer", ".status.training.iteration", 0),
    ("Steps", "integer", ".status.training.timesteps", 0),
    ("Reward", "number", ".status.training.rewardMean", 0),
    ("Evaluation", "number", ".status.evaluation.rewardMean", 0),
    ("Ready", "integer", ".status.workers.ready", 0),
    ("Desired", "integer", ".status.workers.desired", 0),
    ("Attempts", "integer", ".status.attempts", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Steps/s", "number", ".status.training.stepsPerSecond", 1),
    ("Recreated", "integer", ".status.workers.recreated", 1),
    ("Checkpoint", "integer", ".status.checkpoint.iteration", 1),
    ("Message", "string", ".status.message", 1),
]


def custom_resource_definition(settings: Mapping[str, Schema]) -> Schema:
    """Return the CustomResourceDefinition; `settings` types the keys of `spec.config`."""
    document = RLTrainingJob.model_json_schema(by_alias=True)
    schema = structural(document, document["$defs"])
    schema["properties"]["spec"] = structural(document["properties"]["spec"], _saying_defaults(document["$defs"]))
    schema = _without(schema, "nullable")  # an unset field is left out, not null
    schema["properties"]["metadata"] = {"type": "object"}  # the API server knows it; nothing more may be said here
    # Keys outside the list are kept, not pruned, so that the head, which knows the settings, can name a misspelt one.
    schema["properties"]["spec"]["properties"]["config"] |= {
        "properties": {key: _open(structural(schema, {})) for key, schema in sorted(settings.items())},
        **_ANYTHING,
    }
    columns = [
        {"name": name, "type": kind, "jsonPath": path} | ({"priority": priority} if priority else {})
        for name, kind, path, priority in _COLUMNS
    ]
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.workers.scaled",
        "labelSelectorPath": ".status.workers.selector",
    }
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, "scale": scale},
        "additionalPrinterColumns": columns,
    }
    plural = f"{KIND.lower()}s"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": plural,
                "singular": KIND.lower(),
                "shortNames": ["rlj"],
                "categories": ["all"],
            },
            "versions": [version],
        },
    }


def editor_schema(settings: Mapping[str, Schema]) -> Schema:
    """Return the JSON Schema of the document, for completion and checks while a person writes it."""
    schema: Schema = _without(RLTrainingJob.model_json_schema(by_alias=True), "title", "x-kubernetes-")
    schema["required"] = ["apiVersion", "kind", "metadata", "spec"]
    schema["$defs"]["JobSpec"]["properties"]["config"] |= {
        "properties": dict(sorted(settings.items())),
        "additionalProperties": False,
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | schema


def structural(schema: Mapping[str, Any], definitions: Mapping[str, Schema]) -> Schema:
    """Return a structural schema (as CustomResourceDefinitions need it) that accepts what a JSON Schema accepts.

    References are written out. A union that a structural schema cannot say (a number or a list) accepts anything.
    """
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rsplit("/", 1)[1]] | {k: v for k, v in schema.items() if k != "$ref"}
    result = {key: schema[key] for key in _KEPT if key in schema}
    if "const" in schema:
        result["enum"] = [schema["const"]]
    for limit, side in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if limit in schema:
            result |= {side: schema[limit], limit: True}
    if "anyOf" in schema:
        return result | _union(schema["anyOf"], definitions, result)
    return result | _typed(schema, definitions)


def _saying_defaults(schema: Any) -> Any:
    """Return schemas whose descriptions end with the default, where that is a value of its own."""
    if isinstance(schema, list):
        return [_saying_defaults(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: _saying_defaults(value) for key, value in schema.items()}
    default = schema.get("default")
    if isinstance(schema.get("description"), str) and default not in (None, "", [], {}):
        value = default if isinstance(default, str) else json.dumps(default)
        result["description"] = f"{schema['description']} Default: {value}."
    return result


def _open(schema: Schema) -> Schema:
    """Return the schema of a setting with unknown keys kept in every mapping."""
    if "properties" not in schema:
        return schema
    return schema | {"properties": {key: _open(inner) for key, inner in schema["properties"].items()}} | _ANYTHING


def _union(choices: list[Schema], definitions: Mapping[str, Schema], outer: Schema) -> Schema:
    real = [choice for choice in choices if choice.get("type") != "null"]
    nullable = {"nullable": True} if len(real) < len(choices) else {}
    types = {choice.get("type") for choice in real}
    if len(real) == 1:
        return structural(real[0], definitions) | outer | nullable
    if types == {"integer", "string"}:
        pattern = {key: choice[key] for choice in real for key in choice if key == "pattern"}
        return {"x-kubernetes-int-or-string": True} | pattern | nullable
    if types == {"integer", "number"}:
        return {"type": "number"} | nullable
    return _ANYTHING | nullable


def _typed(schema: Mapping[str, Any], definitions: Mapping[str, Schema]) -> Schema:
    match schema.get("type"):
        case "object" if "properties" in schema:
            result: Schema = {"type": "object", "properties": {}}
            for name, field in schema["properties"].items():
                result["properties"][name] = structural(field, definitions)
            return result | ({"required": schema["required"]} if schema.get("required") else {})
        case "object" if isinstance(values := schema.get("additionalProperties"), Mapping) and values:
            limit = {"maxProperties": schema.get("maxProperties", MAX_KEYS)}
            return {"type": "object", "additionalProperties": structural(values, definitions)} | limit
        case "object":
            return {"type": "object"} | _ANYTHING
        case "array":
            items = structural(schema.get("items") or {}, definitions)
            named = "name" in items.get("required", ())
            keyed = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]} if named else {}
            return {"type": "array", "items": items} | keyed
        case str(kind):
            return {"type": kind}
        case list(kinds) if len(rest := [kind for kind in kinds if kind != "null"]) == 1:
            return _typed(dict(schema) | {"type": rest[0]}, definitions) | {"nullable": True}
    return dict(_ANYTHING)


def _without(schema: Any, *prefixes: str) -> Any:
    if isinstance(schema, dict):
        return {key: _without(value, *prefixes) for key, value in schema.items() if not str(key).startswith(prefixes)}
    return [_without(item, *prefixes) for item in schema] if isinstance(schema, list) else schema
