"""Messages: arrays there and back, and bytes that are none."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import numpy as np
import pytest

from reef.external import wire
from reef.external.wire import (
    DTYPES,
    Actions,
    EpisodeStarted,
    Fragment,
    MessageError,
    StartEpisode,
    Step,
    Steps,
    decode,
    encode,
)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3)])
def test_an_array_comes_back_as_it_was(dtype: str, shape: tuple[int, ...]) -> None:
    sent = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    (found,) = decode(encode(Actions(actions=[sent])), Actions).actions
    assert found.dtype == sent.dtype
    assert found.shape == shape
    assert (found == sent).all()


def test_arrays_are_found_inside_of_mappings_and_lists() -> None:
    obs = {"camera": np.eye(2, dtype=np.uint8), "parts": (np.float32(0.5), [1, 2])}
    (step,) = decode(encode(Steps(steps=[Step(episode_id="a", obs=obs, reward=1)])), Steps).steps
    assert (step.obs["camera"] == np.eye(2)).all()
    assert step.obs["parts"] == [0.5, [1, 2]]
    assert step.reward == 1.0
    assert step.action is None


def test_an_array_is_little_endian_in_order_of_c() -> None:
    found = msgspec.msgpack.decode(encode(np.asfortranarray(np.arange(4, dtype=">i2").reshape(2, 2))))
    assert found == {"dtype": "int16", "shape": [2, 2], "data": bytes([0, 0, 1, 0, 2, 0, 3, 0])}


def array(**changed: Any) -> dict[str, Any]:
    return {"dtype": "float32", "shape": [2], "data": bytes(8)} | changed


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (array(dtype="object"), "dtype 'object', expected one of bool"),
        (array(dtype=["float32"]), "dtype"),
        (array(dtype="float32,float32"), "dtype"),
        (array(shape=[3]), r"float32 and the shape \[3\] needs 12 bytes"),
        (array(shape=[-2]), r"the shape \[-2\], expected a list of sizes"),
        (array(shape=[2.0]), "expected a list of sizes"),
        (array(shape=2), "expected a list of sizes"),
        (array(shape=[2**62, 2**62]), "needs"),
        (array(shape=[0, 2**62, 2**62], data=b""), "no Actions message"),
        (array(data="12345678"), "needs 8 bytes"),
    ],
)
def test_what_is_no_array_is_refused(wrong: dict[str, Any], problem: str) -> None:
    with pytest.raises(MessageError, match=problem):
        decode(encode({"actions": [wrong]}), Actions)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "no StartEpisode message"),
        (b"\xc1", "no StartEpisode message"),
        (encode({"episode_id": 3}), "Expected `str | null`, got `int`"),
        (encode({"training": False}), "unknown field `training`"),
        (encode([1]), "Expected `object`, got `array`"),
        (b"\x91" * 100_000 + b"\x01", "no StartEpisode message"),
    ],
)
def test_other_bytes_are_refused(body: bytes, problem: str) -> None:
    with pytest.raises(MessageError, match=problem):
        decode(body, StartEpisode)


def test_the_number_of_values_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    many = b"\x81\xa7actions\xdd" + (2**20).to_bytes(4) + bytes([0x90]) * 2**20  # empty lists
    started = time.process_time()
    with pytest.raises(MessageError, match="more than 200000 values: send arrays in place of lists"):
        decode(many, Actions)
    assert time.process_time() - started < 0.5  # 1 s with an object for each
    assert decode(encode({"actions": [np.zeros(10**6), "a" * 300_000]}), Actions).actions[0].shape == (10**6,)
    kinds = [None, True, -1, -100, -1000, -(10**6), -(10**12), 1, 200, 1000, 10**6, 10**12, 0.5, "", "a", "a" * 40]
    kinds += ["a" * 300, "a" * 70_000, b"", b"a" * 300, b"a" * 70_000, [1], [1] * 20, {"a": 1}]
    kinds += [msgspec.msgpack.Ext(5, bytes(size)) for size in (1, 2, 4, 8, 16, 3, 300, 70_000)]
    kinds += [{str(i): 1 for i in range(20)}, [[0] * 70_000]]

    def count(value: Any) -> int:
        inner = value if isinstance(value, list) else [*value, *value.values()] if isinstance(value, dict) else []
        return 1 + sum(map(count, inner))

    body = msgspec.msgpack.encode(kinds)
    monkeypatch.setattr(wire, "MOST_VALUES", count(kinds))
    wire._check_number_of_values(body)
    monkeypatch.setattr(wire, "MOST_VALUES", count(kinds) - 1)
    with pytest.raises(ValueError, match="more than"):
        wire._check_number_of_values(body)


def test_nesting_without_end_is_refused() -> None:
    with pytest.raises(MessageError, match="no Actions message"):
        decode(b"\x81\xa7actions" + b"\x91" * 100_000 + b"\x01", Actions)


def test_missing_fields_have_their_defaults() -> None:
    assert decode(encode({}), StartEpisode) == StartEpisode(episode_id=None, training_enabled=True)
    assert decode(encode(None), type(None)) is None
    with pytest.raises(MessageError, match="missing required field `episode_id`"):
        decode(encode({}), EpisodeStarted)


@pytest.mark.parametrize("value", [object(), np.array([object()]), np.array(["a"]), {1, 2j}])
def test_what_cannot_be_sent_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="cannot be sent|not supported"):
        encode(Fragment(obs=value, actions=None, rewards=None))
