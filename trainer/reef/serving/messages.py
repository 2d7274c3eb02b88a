"""What clients send and get: in JSON, or in MessagePack as a policy server's clients send it."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from reef.errors import ConfigError
from reef.external.wire import CONTENT_TYPE as MSGPACK
from reef.external.wire import MOST_VALUES, NOT_DECODED, Message, MessageError, decode, encode
from reef.serving.finished import ActionRequest, ActionResponse, FinishedPolicy

JSON = "application/json"
CONTENT_TYPES = (JSON, MSGPACK)
M = TypeVar("M")


class AskActions(Message):
    """One observation, or several; with their states for a policy with a memory."""

    observation: Any = UNSET  # a value of the observation space
    observations: Any = UNSET  # N of them
    state: Any = UNSET  # as the answer before had it; left out or null: an episode begins
    states: Any = UNSET  # N of them
    reward: float | UnsetType = UNSET  # of the action before, for a policy that reads rewards
    rewards: list[float] | UnsetType = UNSET  # N of them


class Action(Message):
    """The answer to one observation."""

    action: Any  # a value of the action space
    state: Any = UNSET  # after the action; left out for a policy without a memory


class Actions(Message):
    """The answer to several observations."""

    actions: list[Any]
    states: Any = UNSET


class Refused(Message):
    """The answer of a WebSocket to a request that is wrong, or cannot be done now."""

    status: int  # as over HTTP
    error: str  # the text


def decoded(body: bytes, content_type: str) -> AskActions:
    """The request in the bytes; MessageError where there is none."""
    if content_type == MSGPACK:
        return decode(body, AskActions)
    if len(body) > MOST_VALUES and sum(map(body.count, (b",", b"[", b"{", b":"))) > MOST_VALUES:
        raise MessageError(f"it has more than {MOST_VALUES} values: send arrays in MessagePack")
    try:
        return msgspec.json.decode(body, type=AskActions)
    except NOT_DECODED as error:
        found = next((word for word in ("NaN", "Infinity") if word.encode() in body), None)
        hint = "" if found is None else f" {found} is no number of JSON, and no observation may have it."
        raise MessageError(f"the body is no AskActions message: {error}.{hint}") from error


def read(message: AskActions, policy: FinishedPolicy) -> ActionRequest:
    """The observations of a request; ConfigError where they are wrong."""
    if (message.observation is UNSET) == (message.observations is UNSET):
        raise ConfigError("give 'observation', one value, or 'observations', a list of them.")
    one = message.observation is not UNSET
    for name, other in (("state", "states"), ("reward", "rewards")):
        wrong, right = (other, name) if one else (name, other)
        if getattr(message, wrong) is not UNSET:
            raise ConfigError(f"{wrong!r} does not belong to 'observation{'' if one else 's'}'. Give {right!r}.")
    if one:
        states = None if message.state is UNSET or message.state is None else [message.state]
        return policy.read([message.observation], states, None if message.reward is UNSET else [message.reward])
    if not (isinstance(message.observations, list) or np.ndim(message.observations)) or not len(message.observations):
        raise ConfigError("'observations' is no list of observations, or an empty one.")
    states = None if message.states is UNSET or message.states is None else message.states
    if states is not None and not isinstance(states, list):
        raise ConfigError("'states' is no list: give one state for each observation, or null.")
    return policy.read(message.observations, states, None if message.rewards is UNSET else message.rewards)


def answer(message: AskActions, acted: ActionResponse, *, has_memory: bool) -> Action | Actions:
    """What is sent back."""
    states = acted.states if has_memory else UNSET
    if message.observation is UNSET:
        return Actions(actions=acted.actions, states=states)
    return Action(action=acted.actions[0], state=acted.states[0] if has_memory else UNSET)


def encoded(message: Any, content_type: str) -> bytes:
    """A message as bytes; arrays are nested lists in JSON."""
    return encode(message) if content_type == MSGPACK else msgspec.json.encode(message, enc_hook=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} is no value of a space")
