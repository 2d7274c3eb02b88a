"""The job reference in Markdown: every field of the document and every setting of every algorithm."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from reef.cli.describe import explorations, in_groups, meaning_of, own_refusals

if TYPE_CHECKING:
    from reef.config.declaration import Setting
    from reef.config.refusals import Refusal


def job_reference() -> str:
    """Return the whole reference."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    from reef.algorithms.registry import ALGORITHMS, config_class
    from reef.api.schema import custom_resource_definition
    from reef.config import AlgorithmConfig
    from reef.config.describe import settings_of
    from reef.config.refusals import REFUSALS

    yield "# Job reference\n\nGenerated from the declarations by `make docs`; do not edit.\n"
    yield "## The document\n\n`apiVersion: reef.dev/v1`, `kind: RLTrainingJob`.\n"
    yield "| Field | Type | Meaning |\n|---|---|---|"
    version = custom_resource_definition({})["spec"]["versions"][0]
    fields = version["schema"]["openAPIV3Schema"]["properties"]
    for part in ("spec", "status"):
        yield from _fields(part, fields[part])
    shared = settings_of(AlgorithmConfig)
    yield "\n## Settings of every algorithm\n\nKeys of `spec.config`. An algorithm may have another default."
    yield from _settings(shared)
    yield "\n### refused settings\n\nSettings of RLlib that must stay at this value, which has no effect.\n"
    yield from _refused(REFUSALS)
    yield "\n### types of exploration_config\n\n| Type | Arguments | Meaning |\n|---|---|---|"
    for name, arguments, meaning in explorations():
        given = ", ".join(f"`{key}: {json.dumps(value)}`" for key, value in arguments.items()) or "none"
        yield f"| `{name}` | {given} | {_cell(meaning)} |"
    known = {info.name: info for info in shared}
    for name in sorted(ALGORITHMS):
        own = [info for info in settings_of(config_class(name)) if known.get(info.name) != info]
        yield f"\n## Settings of {name}\n\nIts own, and those of every algorithm for which it has another default."
        yield from _settings(own)
        if refused := own_refusals(config_class(name)):
            yield f"\n### refused settings of {name}\n"
            yield from _refused(refused)


def _fields(path: str, schema: dict[str, Any]) -> Iterator[str]:
    required = set(schema.get("required", ()))
    for name, field in schema.get("properties", {}).items():
        kind = field.get("type", "integer or text" if "x-kubernetes-int-or-string" in field else "anything")
        inner = field.get("items", field)
        need = ", required" if name in required else ""
        yield f"| `{path}.{name}` | {kind}{need} | {_cell(field.get('description', ''))} |"
        suffix = "[]" if kind == "array" else ""
        yield from _fields(f"{path}.{name}{suffix}", inner)
        if isinstance(values := inner.get("additionalProperties"), dict):
            yield from _fields(f"{path}.{name}.*", values)


def _settings(settings: list[Setting]) -> Iterator[str]:
    for group, members in in_groups(settings):
        yield f"\n### {group.replace('_', ' ')}\n\n| Setting | Type | Default | Meaning |\n|---|---|---|---|"
        for info in members:
            default = json.dumps(info.default, default=str)
            yield f"| `{info.name}` | {_cell(info.type)} | `{_cell(default)}` | {_cell(meaning_of(info))} |"


def _refused(refusals: Mapping[str, Refusal]) -> Iterator[str]:
    yield "| Setting | Value | Why |\n|---|---|---|"
    for key, refusal in refusals.items():
        yield f"| `{key}` | `{_cell(json.dumps(refusal.default))}` | {_cell(refusal.advice)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
