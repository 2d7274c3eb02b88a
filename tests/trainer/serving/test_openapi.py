"""/openapi.json is true: its paths are those of the server, and its schemas those of what is sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from any_spaces import with_spaces
from finished import MEMORY, finished, ppo
from gymnasium import spaces
from jsonschema import Draft202012Validator

from reef.config import AlgorithmConfig
from reef.serving.finished import FinishedPolicy
from reef.serving.messages import JSON, AskActions, answer, decoded, encoded, read
from reef.serving.metrics import KINDS
from reef.serving.openapi import TEXTS, openapi, space_schema
from reef.serving.server import FinishedPolicyServer, ServingLimits

COMPOSITE = with_spaces(
    spaces.Dict({"a": spaces.Box(-1, 1, (2, 3)), "b": spaces.Discrete(3, start=2)}),
    spaces.Tuple([spaces.Discrete(2, start=5), spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(2)]),
)


def validator(document: dict[str, Any], name: str) -> Draft202012Validator:
    return Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": document["components"]})


@pytest.mark.parametrize("config", [ppo(), ppo(model=MEMORY), ppo(**COMPOSITE)], ids=["vector", "memory", "composite"])
def test_messages_are_as_their_schemas_say(config: AlgorithmConfig, tmp_path: Path) -> None:
    policy = finished(config, tmp_path / "c")
    document = openapi(policy, has_token=True)
    observation = json.loads(encoded(policy.observation_space.sample(), JSON))
    for asked in ({"observation": observation}, {"observations": [observation, observation]}):
        for _ in range(2):
            validator(document, "AskActions").validate(asked)
            found = answered(policy, asked)
            validator(document, "Answer").validate(found)
            asked |= {name: found[name] for name in ("state", "states") if name in found}
    for wrong in ({}, {"observation": observation, "observations": [observation]}, {"observation": "left"}):
        assert not validator(document, "AskActions").is_valid(wrong)


def answered(policy: FinishedPolicy, asked: dict[str, Any]) -> dict[str, Any]:
    message = decoded(json.dumps(asked).encode(), JSON)
    (acted,) = policy.act([read(message, policy)])
    assert isinstance(message, AskActions)
    return msgspec.json.decode(encoded(answer(message, acted, has_memory=bool(policy.state_names)), JSON))


@pytest.mark.parametrize("has_page", [True, False])
@pytest.mark.parametrize("has_token", [True, False])
def test_paths_are_those_of_the_server(has_token: bool, has_page: bool, tmp_path: Path) -> None:
    policy = finished(ppo(env="shades:Shades"), tmp_path / "c")
    document = openapi(policy, has_token=has_token, has_page=has_page)
    server = FinishedPolicyServer(policy, ServingLimits(1, 1000, 10), "secret" if has_token else None, play=has_page)
    routes = {(route.resource.canonical, route.method.lower()) for route in server.app.router.routes()}
    assert routes == {(path, method) for path, methods in document["paths"].items() for method in methods}
    guarded = {path for path, methods in document["paths"].items() for each in methods.values() if "security" in each}
    pages = {"/v1/play"} if has_page else set()
    assert guarded == ({"/v1/actions", "/v1/policy", *pages} if has_token else set())
    for path in ("/v1/actions", "/v1/policy", *pages):
        for each in document["paths"][path].values():
            assert {"401", "403"} & each["responses"].keys() == {"401" if has_token else "403"}, path
    validator(document, "Policy").validate(json.loads(server._described))


def test_every_status_that_a_request_for_actions_gets_is_described() -> None:
    assert TEXTS.keys() == KINDS.keys() - {404, 405}  # which are of other paths and methods


@pytest.mark.parametrize(
    ("space", "wrong"),
    [
        (spaces.Discrete(3, start=2), 5),
        (spaces.Box(0, 255, (2, 2), np.uint8), [[0.5, 1], [1, 1]]),
        (spaces.Box(-1, 1, ()), [0.0]),
        (spaces.MultiBinary([2, 2]), [0, 1]),
    ],
)
def test_the_schema_of_a_space_fits_its_values_alone(space: spaces.Space[Any], wrong: Any) -> None:
    schema = Draft202012Validator(space_schema(space))
    schema.validate(json.loads(encoded(space.sample(), JSON)))
    assert not schema.is_valid(wrong)
