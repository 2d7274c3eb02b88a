"""The ConfigMap that holds the resolved document: what the pods read, and what immutable fields are compared with."""

from __future__ import annotations

import json
from typing import Any

from reef_operator import names
from reef_operator.builders.parts import Blueprint


def config_map(blueprint: Blueprint) -> dict[str, Any]:
    """Return the ConfigMap with the resolved document."""
    return blueprint.built("v1", "ConfigMap", names.document(blueprint.name), data=data(blueprint))


def data(blueprint: Blueprint) -> dict[str, str]:
    """Return what the ConfigMap holds."""
    return {names.DOCUMENT_KEY: json.dumps(blueprint.document, sort_keys=True)}
