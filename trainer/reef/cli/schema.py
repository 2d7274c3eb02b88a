"""`reef schema`: the CustomResourceDefinition and the JSON Schema of the job document, from the same declarations."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

FILES = {  # where each form is kept; a chart can hold no file from outside its folder
    "crd": ("crds/rltrainingjobs.reef.dev.yaml", "charts/reef/definitions/rltrainingjobs.reef.dev.yaml"),
    "json": ("docs/rltrainingjob.schema.json",),
}

KNOWN = "trainer/reef/api/known_settings.json"


def add_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], verbosity: argparse.ArgumentParser
) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "schema", parents=[verbosity], help="print the CRD or the JSON Schema of the job document"
    )
    parser.add_argument(
        "form", nargs="?", choices=[*FILES], default="crd", help="crd for clusters, json for editors (%(default)s)"
    )
    parser.set_defaults(action=_command)


def _command(args: argparse.Namespace) -> int:
    print(generate(args.form), end="")
    return 0


def generate(form: str) -> str:
    """Return the text of the schema for clusters ("crd") or editors ("json")."""
    import yaml

    from reef.api.schema import custom_resource_definition, editor_schema

    if form == "json":
        return json.dumps(editor_schema(all_settings()), indent=2, ensure_ascii=False) + "\n"
    heading = "# Generated from trainer/reef/api and the settings' declarations by `make schema`; do not edit.\n"
    return heading + yaml.safe_dump(
        custom_resource_definition(all_settings()), sort_keys=False, width=120, allow_unicode=True
    )


def all_settings() -> dict[str, dict[str, Any]]:
    """Return the JSON Schema of every setting that some algorithm has, by key.

    Where algorithms differ in what a setting may be, anything goes: the algorithm itself checks it.
    """
    from reef.algorithms.registry import ALGORITHMS, config_class
    from reef.config.describe import json_schema

    merged: dict[str, dict[str, Any]] = {}
    for name in ALGORITHMS:
        for key, schema in json_schema(config_class(name))["properties"].items():
            stated = {part: value for part, value in schema.items() if part != "default"}
            if merged.setdefault(key, stated) != stated:
                merged[key] = {"description": merged[key].get("description", "")}
    return merged


def known_settings() -> str:
    """Return as JSON the keys of the settings that all algorithms have ("shared") and that each adds ("own").

    Older spellings are among them.
    """
    from reef.algorithms.registry import ALGORITHMS, config_class
    from reef.config.aliases import WITHOUT_EFFECT
    from reef.config.describe import json_schema

    keys: dict[str, set[str]] = {}
    for name in sorted(ALGORITHMS):
        properties = json_schema(config_class(name))["properties"]
        inside = {f"{key}.{inner}" for key, schema in properties.items() for inner in schema.get("properties", ())}
        keys[name] = {*properties, *inside, *WITHOUT_EFFECT, "multiagent"}
    shared = set.intersection(*keys.values())
    own = {name: sorted(found - shared) for name, found in keys.items()}
    return json.dumps({"shared": sorted(shared), "own": own}, indent=1) + "\n"


def write(root: Path) -> None:
    """Write both schemas, and the keys of the settings, under the repository's root."""
    (root / KNOWN).parent.mkdir(parents=True, exist_ok=True)
    (root / KNOWN).write_text(known_settings(), encoding="utf-8")
    print(f"wrote {KNOWN}")
    for form, paths in FILES.items():
        text = generate(form)
        for path in paths:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
            print(f"wrote {path}")


if __name__ == "__main__":
    write(Path.cwd())
    sys.exit(0)
