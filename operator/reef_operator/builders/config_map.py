"""The ConfigMap with the resolved document: the pods read it, and immutable fields are compared with it."""

from __future__ import annotations

import json
from typing import Any

from reef_operator import names
from reef_operator.builders.parts import Blueprint


def config_map(blueprint: Blueprint) -> dict[str, Any]:
    """Return the ConfigMap with the resolved document."""
    return blueprint.built("v1", "ConfigMap", names.document(blueprint.name), data=data(blueprint))


def data(blueprint: Blueprint) -> dict[str, str]:
    """Return the data of the ConfigMap."""
    return {names.DOCUMENT_KEY: json.dumps(blueprint.document, sort_keys=True)}
