"""/openapi.json: what a server answers, with the schemas of its policy's own observations and actions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

import reef
from reef.external.wire import CONTENT_TYPE as MSGPACK
from reef.external.wire import DTYPES
from reef.nn.queries.policy import PREV_REWARDS
from reef.serving.finished import FinishedPolicy
from reef.serving.messages import JSON
from reef.spaces import Space

TEXTS = {
    400: "An observation, a state or the request is wrong: the text names it.",
    401: "The token is missing or wrong.",
    403: "The request comes from a page that is not this server's own under a loopback name.",
    408: "The body did not come in time.",
    413: "The body is too large.",
    415: "The body has another content type.",
    429: "Too many observations wait. Try again after `Retry-After` seconds.",
    500: "The server failed, as its log says.",
}
DESCRIBED = {
    "policy": "string",
    "algorithm": "string",
    "observation_space": "object",
    "action_space": "object",
    "explore": "boolean",
    "state": "array",
    "max_observations": "integer",
    "max_request_bytes": "integer",
    "max_message_bytes": "integer",
}
Schema = dict[str, Any]
OPENED: Schema = {"101": {"description": "The WebSocket is open."}}
SOCKET = (
    "A text message is `AskActions` in JSON, a binary one the same in MessagePack. Each is answered, in their order "
    "and in its own form, with `Answer` or `Refused`. Several may be under way."
)


def openapi(policy: FinishedPolicy, *, has_token: bool, has_page: bool = False) -> Schema:
    """The document, OpenAPI 3.1."""
    paths = _paths() | (_pages() if has_page else {})
    for methods in paths.values():
        for each in methods.values():
            if "401" not in each["responses"]:
                continue
            if has_token:
                each["security"] = [{"token": []}]
            else:
                del each["responses"]["401"]
                each["responses"] |= _errors([403])
    components: Schema = {"schemas": _schemas(policy)}
    if has_token:
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": f"Policy {policy.policy_id} of {policy.policy.config.label}", "version": reef.__version__},
        "paths": paths,
        "components": components,
    }


def _paths() -> Schema:
    """Paths, methods and answers; 401 among them says that not every request is let in."""
    text: Schema = {"text/plain": {"schema": {"type": "string"}}}
    action: Schema = {
        "summary": "The actions for one observation or several",
        "requestBody": {"required": True, "content": _both("AskActions")},
        "responses": _ok(_both("Answer")) | _errors(each for each in TEXTS if each != 403),
    }
    socket: Schema = {
        "summary": "The same by WebSocket",
        "description": SOCKET,
        "responses": OPENED | _errors([400, 401]),
    }
    described: Schema = {
        "summary": "What is served: spaces and memory",
        "responses": _ok({JSON: {"schema": _ref("Policy")}}) | _errors([401]),
    }
    return {
        "/v1/actions": {"post": action, "get": socket},
        "/v1/policy": {"get": described},
        "/healthz": {"get": {"summary": "It answers", "responses": _ok(text)}},
        "/metrics": {"get": {"summary": "For Prometheus", "responses": _ok(text)}},
        "/openapi.json": {"get": {"summary": "This document", "responses": _ok({JSON: {"schema": {}}})}},
    }


def _pages() -> Schema:
    """What `reef serve --play` has besides."""
    html: Schema = {"text/html": {"schema": {"type": "string"}}}
    watch: Schema = {
        "summary": "Pictures and rewards for that page, by WebSocket",
        "responses": OPENED | _errors([400, 401]),
    }
    return {
        "/play": {"get": {"summary": "A page on which the policy plays", "responses": _ok(html)}},
        "/v1/play": {"get": watch},
    }


def _ok(content: Schema) -> Schema:
    return {"200": {"description": "OK", "content": content}}


def _both(name: str) -> Schema:
    """A message of this name in either content type."""
    packed: Schema = {"description": f"The fields of {name}; an array may be an `Array`, and is answered as one."}
    return {JSON: {"schema": _ref(name)}, MSGPACK: {"schema": {"type": "object"} | packed}}


def _errors(statuses: Iterable[int]) -> Schema:
    text = {"text/plain": {"schema": {"type": "string"}}}
    found: Schema = {str(status): {"description": TEXTS[status], "content": text} for status in statuses}
    if "429" in found:
        found["429"]["headers"] = {"Retry-After": {"schema": {"type": "integer"}}}
    return found


def _schemas(policy: FinishedPolicy) -> Schema:
    asks_one, asks_several = {"observation": _ref("Observation")}, {"observations": _list(_ref("Observation"), least=1)}
    answers_one, answers_several = {"action": _ref("Action")}, {"actions": _list(_ref("Action"))}
    schemas: Schema = {
        "Observation": space_schema(policy.observation_space),
        "Action": space_schema(policy.action_space),
        "Array": _binary_array(),
        "Policy": _object({name: {"type": kind} for name, kind in DESCRIBED.items()}, [*DESCRIBED]),
    }
    if policy.state_names:
        or_null = {"anyOf": [_ref("State"), {"type": "null"}]}
        asks_one["state"], asks_several["states"] = or_null, _list(or_null)
        if PREV_REWARDS in policy.state_names:
            asks_one["reward"], asks_several["rewards"] = {"type": "number"}, _list({"type": "number"})
        answers_one["state"], answers_several["states"] = _ref("State"), _list(_ref("State"))
        parts = [_nested(part.shape[1:], {"type": "number"}) for part in policy.policy.one_state(None)]
        about: Schema = {"description": "What the answer before had. Null or left out: an episode begins."}
        schemas["State"] = about | _list_of(parts)
    schemas["Refused"] = _object({"status": {"type": "integer"}, "error": {"type": "string"}}, ["status", "error"])
    both = [_object(asks_one, ["observation"]), _object(asks_several, ["observations"])]
    schemas["AskActions"] = {"oneOf": both}
    schemas["Answer"] = {"oneOf": [_object(each, [*each]) for each in (answers_one, answers_several)]}
    return schemas


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(properties: Schema, required: list[str]) -> Schema:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _list(item: Schema, least: int = 0) -> Schema:
    return {"type": "array", "items": item, "minItems": least}


def _list_of(parts: list[Schema]) -> Schema:
    """A list with one item of each of these schemas."""
    return {"type": "array", "prefixItems": parts, "minItems": len(parts), "maxItems": len(parts)}


def _binary_array() -> Schema:
    return {
        "description": "An array in MessagePack: its bytes in C order, little-endian.",
        "type": "object",
        "properties": {
            "dtype": {"enum": list(DTYPES)},
            "shape": {"type": "array", "items": {"type": "integer", "minimum": 0}},
            "data": {"description": "bytes"},
        },
        "required": ["dtype", "shape", "data"],
    }


def space_schema(space: Space) -> Schema:
    """The schema of the values of a space, as JSON."""
    if isinstance(space, spaces.Discrete):
        return {"type": "integer", "minimum": int(space.start), "maximum": int(space.start + space.n - 1)}
    if isinstance(space, spaces.Dict):
        return _object({key: space_schema(child) for key, child in space.spaces.items()}, list(space.spaces))
    if isinstance(space, spaces.Tuple):
        return _list_of([space_schema(child) for child in space.spaces])
    is_whole = not np.issubdtype(space.dtype, np.floating)
    return _nested(space.shape or (), {"type": "integer" if is_whole else "number"})


def _nested(shape: Sequence[int], item: Schema) -> Schema:
    for size in reversed(shape):
        item = {"type": "array", "items": item, "minItems": size, "maxItems": size}
    return item
