"""What a policy server and its clients send: messages in MessagePack, of which no code is ever made.

docs/external-protocol.md describes the protocol for clients in other languages.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

import msgspec
import numpy as np

from reef.types import DEFAULT_POLICY, Array

VERSION = "/v1"
REQUEST = "Reef-Request"  # header "CLIENT/NUMBER": a request that is sent again has the same
CONTENT_TYPE = "application/msgpack"
MOST_VALUES = 200_000  # of a message: lists, maps and keys count too, and an array as about ten
ARRAY_KEYS = {"dtype", "shape", "data"}
DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
          "float64")  # fmt: skip
NOT_DECODED = (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError)


class MessageError(ValueError):
    """Bytes from the network that are no message."""


class Message(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A message: a map of its fields by name; an unknown field is refused."""


class StartEpisode(Message):
    """Begin an episode."""

    episode_id: str | None = None  # null: the server chooses one
    training_enabled: bool = True  # false: its steps are never learned from


class EpisodeStarted(Message):
    """The answer to `StartEpisode`."""

    episode_id: str
    has_agents: bool = False  # an episode has several agents: all that is sent of it says of which


class Step(Message):
    """An observation of one episode and agent, for which an action is asked or reported."""

    episode_id: str
    obs: Any  # a value of the observation space; null is allowed with `done`
    agent_id: str | int | None = None  # where an episode has several
    reward: float = 0.0  # the sum since the last action of the episode, to which it is credited
    action: Any = None  # a value of the action space that the application chose by itself; null: the policy is to act
    done: bool = False  # the agent has ended, and `obs` is its last observation: no action follows


class Steps(Message):
    """Observations of one or several episodes."""

    steps: list[Step]


class Actions(Message):
    """The answer to `Steps`: an action for each of them, in their order; null for an agent that ends."""

    actions: list[Any]


class LastStep(Message):
    """The last observation of an agent."""

    obs: Any  # null is allowed where an episode has several agents
    agent_id: str | int | None = None  # where an episode has several
    reward: float = 0.0


class EndEpisode(Message):
    """The end of an episode."""

    episode_id: str
    steps: list[LastStep]  # of the agents that are there
    truncated: bool = False  # the episode was cut off, and its last observations still have a value


class Fragment(Message):
    """T consecutive steps of one agent, acted by the client's copy of its policy."""

    obs: Any  # [T + 1, *obs], as the network takes them; the last one follows the last step
    actions: Any  # [T, *action], as the policy chose them
    rewards: Any  # [T]
    dist_inputs: Any = None  # [T, D] the inputs of the action distribution; null where the policy records none
    policy_id: str = DEFAULT_POLICY
    terminated: bool = False  # whether the agent ended with the last step
    truncated: bool = False  # whether it was cut off there
    version: int = 0  # of the weights that acted
    state_in: Any = None  # by name, [1, ...] each: the policy's memory before the first step; null without a memory


class Result(Message):
    """What is known of an episode that is over."""

    reward: float
    length: int  # environment steps
    policy_rewards: dict[str, float]  # by policy: the mean of its agents


class Fragments(Message):
    """What was played of one episode."""

    fragments: list[Fragment]
    env_steps: int  # environment steps since the message before
    episode: Result | None = None  # where it is over


class Specification(Message):
    """What a client needs to act by itself."""

    algorithm: str
    settings: dict[str, Any]
    fragment_length: int  # steps after which an episode is cut
    max_request_bytes: int
    worker_index: int = 0  # that a mapping function of the server finds in an episode


class PublishedWeights(Message):
    """The newest weights; without `weights` the asking client has them already, or is only told the version."""

    version: int
    timestep: int  # environment steps so far, for schedules of the exploration
    weights: dict[str, bytes] | None = None  # by policy: a safetensors file


M = TypeVar("M")


def encode(message: Any) -> bytes:
    """A message as bytes."""
    return msgspec.msgpack.encode(message, enc_hook=_plain)


def decode(body: bytes, kind: type[M]) -> M:
    """The message of this kind that the bytes hold; MessageError for all other bytes."""
    try:
        _check_number_of_values(body)
        message = msgspec.msgpack.decode(body, type=kind)
        found: M = _with_arrays(message)
    except NOT_DECODED as error:
        raise MessageError(f"the body is no {kind.__name__} message: {error}") from error
    return found


# Bytes of a MessagePack value after its first one, by that one. An array or a map has no more here: its items follow.
FIXED = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8, 0xD4: 2, 0xD5: 3,
         0xD6: 5, 0xD7: 9, 0xD8: 17, 0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}  # fmt: skip
# Bytes of the length of text and data, which follow it; an extension has one more, its type.
OF_LENGTH = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
EXTENSIONS = (0xC7, 0xC8, 0xC9)


def _check_number_of_values(body: bytes) -> None:
    """Raise ValueError for more than MOST_VALUES, before there is an object for each."""
    if len(body) <= MOST_VALUES:
        return
    at = values = 0
    while at < len(body):
        values += 1
        if values > MOST_VALUES:
            raise ValueError(f"it has more than {MOST_VALUES} values: send arrays in place of lists of numbers")
        first = body[at]
        at += 1 + FIXED.get(first, 0)
        if 0xA0 <= first <= 0xBF:  # a short text
            at += first - 0xA0
        elif size := OF_LENGTH.get(first):
            at += size + int.from_bytes(body[at : at + size]) + (first in EXTENSIONS)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        if value.dtype.name not in DTYPES:
            raise TypeError(f"an array of {value.dtype} cannot be sent, only of {', '.join(DTYPES)}")
        little = np.ascontiguousarray(value, value.dtype.newbyteorder("<"))
        return {"dtype": value.dtype.name, "shape": list(value.shape), "data": little.tobytes()}
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a {type(value).__name__} cannot be sent: give arrays, numbers, text, lists or mappings")


def _with_arrays(value: Any) -> Any:
    """The value with arrays in place of the maps that stand for them."""
    if isinstance(value, list):
        return [_with_arrays(item) for item in value]
    if isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            setattr(value, name, _with_arrays(getattr(value, name)))
        return value
    if not isinstance(value, dict):
        return value
    if value.keys() == ARRAY_KEYS:
        return _array(**value)
    return {key: _with_arrays(item) for key, item in value.items()}


def _array(dtype: Any, shape: Any, data: Any) -> Array:
    if dtype not in DTYPES:
        raise ValueError(f"an array has the dtype {dtype!r}, expected one of {', '.join(DTYPES)}")
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(f"an array has the shape {shape!r}, expected a list of sizes")
    kind = np.dtype(dtype).newbyteorder("<")
    expected = math.prod(shape) * kind.itemsize
    if not isinstance(data, bytes) or len(data) != expected:
        raise ValueError(f"an array of {dtype} and the shape {shape} needs {expected} bytes of data")
    return np.frombuffer(data, kind).reshape(shape).astype(dtype)
