"""The Secret with the token that admits a process to the job's Ray cluster."""

from __future__ import annotations

import base64
from typing import Any

from reef_operator import names
from reef_operator.builders.parts import Blueprint


def secret(blueprint: Blueprint, token: str) -> dict[str, Any]:
    """Return the Secret, created once per job; `token` is 64 hexadecimal digits."""
    assert len(token) == 64, "a token that can be guessed is worse than none"
    value = base64.b64encode(token.encode()).decode()
    return blueprint.built("v1", "Secret", names.token(blueprint.name), type="Opaque", data={names.TOKEN_KEY: value})
