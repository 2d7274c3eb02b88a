"""Observations as arrays: what a preprocessor makes of them, and what a network takes of it again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from reef.errors import ConfigError, EnvironmentError
from reef.models.preprocessors import GenericPixelPreprocessor, Preprocessor, get_preprocessor

NESTED = spaces.Dict(
    {
        "box": spaces.Box(-1, 1, (2,)),
        "choice": spaces.Discrete(3, start=1),
        "pair": spaces.Tuple((spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(2))),
    }
)
VALUE = {"box": np.array([0.5, -0.5], np.float32), "choice": 3, "pair": (np.array([1, 2]), np.array([1, 0], np.int8))}
HOT = [0.5, -0.5, 0, 0, 1, 0, 1, 0, 0, 1, 1, 0]
FLAT = [0.5, -0.5, 2, 1, 2, 1, 0]


@pytest.mark.parametrize(
    ("space", "value", "expected"),
    [
        (spaces.Box(-1, 1, (2,)), [0.25, 0.5], [0.25, 0.5]),
        (spaces.Discrete(4), 2, [0, 0, 1, 0]),
        (spaces.Discrete(3, start=5), 5, [1, 0, 0]),
        (spaces.MultiDiscrete([2, 3]), [1, 0], [0, 1, 1, 0, 0]),
        (spaces.MultiBinary(3), [1, 0, 1], [1, 0, 1]),
        (NESTED, VALUE, HOT),
    ],
)
def test_indices_become_one_hot_and_parts_one_vector(space: spaces.Space[Any], value: Any, expected: Any) -> None:
    preprocessor = get_preprocessor(space)(space)
    array = preprocessor.transform(value)
    np.testing.assert_array_equal(array, np.array(expected, array.dtype))
    assert array.shape == preprocessor.shape == (preprocessor.size,)


def test_an_image_stays_an_image() -> None:
    space = spaces.Box(0, 255, (96, 96, 3), np.uint8)
    frame = space.sample()
    assert get_preprocessor(space)(space).transform(frame) is frame


def test_a_frame_of_an_atari_game_becomes_small() -> None:
    space = spaces.Box(0, 255, (210, 160, 3), np.uint8)
    preprocessor = get_preprocessor(space)(space)
    frame = np.full((210, 160, 3), (64, 128, 192), np.uint8)
    frame[:25] = frame[-25:] = 255  # what is cut off
    array = preprocessor.transform(frame)
    assert array.shape == preprocessor.shape == (84, 84, 3)
    assert (array == np.array([-0.5, 0.0, 0.5], np.float32)).all()
    assert (array.dtype, preprocessor.size) == (np.float32, 84 * 84 * 3)


@pytest.mark.parametrize(
    ("options", "shape", "value"),
    [
        ({"dim": 42}, (42, 42, 3), 0.0),
        ({"grayscale": True, "zero_mean": False}, (84, 84, 1), 128),
        ({"dim": 100, "zero_mean": False, "other": 1}, (100, 100, 3), 128),
    ],
)
def test_options_of_frames(options: dict[str, Any], shape: tuple[int, ...], value: float) -> None:
    space = spaces.Box(0, 255, (210, 160, 3), np.uint8)
    array = GenericPixelPreprocessor(space, options).transform(np.full((210, 160, 3), (118, 128, 138), np.uint8))
    assert array.shape == shape
    assert array[..., shape[2] // 2].tolist() == np.full(shape[:2], value).tolist()


def test_what_is_no_frame_is_named() -> None:
    space = spaces.Box(0, 255, (210, 160, 3), np.uint8)
    with pytest.raises(ConfigError, match=r"has shape \(84, 84\), expected \(210, 160, 3\): one frame"):
        GenericPixelPreprocessor(space).transform(np.zeros((84, 84)))
    with pytest.raises(ConfigError, match="has no frames of an Atari game: use get_preprocessor"):
        GenericPixelPreprocessor(spaces.Box(0, 1, (4,)))


@pytest.mark.parametrize(
    "batch",
    [
        {"box": [[0.5, -0.5]] * 2, "choice": [3, 3], "pair": ([[1, 2]] * 2, [[1, 0]] * 2)},
        [HOT, HOT],
        np.array([FLAT, FLAT]),
    ],
)
def test_a_network_takes_values_and_both_kinds_of_arrays(batch: Any) -> None:
    rows = Preprocessor(NESTED).observations(batch)
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(rows, np.array([FLAT, FLAT], np.float32))


def test_one_hot_rows_of_a_discrete_space_are_indices_again() -> None:
    preprocessor = Preprocessor(spaces.Discrete(4))
    for batch in ([2, 0], np.eye(4)[[2, 0]]):
        rows = preprocessor.observations(batch)
        assert (rows.tolist(), rows.dtype) == ([2, 0], np.int64)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (np.zeros((2, 5)), r"have shape \(2, 5\), expected \('N', 7\) or \('N', 12\): a batch of them"),
        (FLAT, r"have shape \(7,\), expected"),
        ({"box": [[0.0, 0.0]]}, r"no part \['choice'\] of Dict"),
        ({**VALUE, "choice": [3], "pair": ([[1, 2]], [[1, 0]])}, r"observations\['box'\] have shape \(2,\), expected"),
        ([[0.5, np.nan, 2, 1, 2, 1, 0]], "NaN or infinite"),
        ([[0.5, 0.5, 9, 1, 2, 1, 0]], r"have 10 at index \[0, 2\], expected 1 to 3 of Discrete\(3, start=1\)"),
    ],
)
def test_a_batch_that_does_not_fit_is_named(batch: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Preprocessor(NESTED).observations(batch)


def test_a_value_of_another_space_is_named() -> None:
    with pytest.raises(ConfigError, match=r"is no value of Dict.*the first that reset\(\) and step\(\) return"):
        Preprocessor(NESTED).transform({"box": [0.0, 0.0]})
    with pytest.raises(ConfigError, match=r"the observation 4 has 4 at index \[0\], expected 0 to 3 of Discrete\(4\)"):
        Preprocessor(spaces.Discrete(4)).transform(4)
    with pytest.raises(EnvironmentError, match="no fixed-size array can hold"):
        get_preprocessor(spaces.Text(3))


@pytest.mark.parametrize(
    ("space", "value", "message"),
    [
        (spaces.Box(0, 255, (2,), np.uint8), [300, 0], "the observation is no value of Box"),
        (spaces.Box(0, 255, (2,), np.uint8), np.array([1, 300], np.uint16), "has 300, which uint8 cannot hold"),
        (spaces.Box(0, 255, (2,), np.uint8), np.array([0.5, 1.0]), "has 0.5, which uint8 cannot hold"),
        (spaces.Discrete(3, start=5), 5.5, "has 5.5, which int64 cannot hold"),
    ],
)
def test_a_value_that_the_dtype_would_change_is_refused(space: spaces.Space[Any], value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Preprocessor(space).flatten(value)


@pytest.mark.parametrize(
    ("space", "value"),
    [
        (spaces.Box(0, 255, (2,), np.uint8), np.array([3, 255], np.int64)),
        (spaces.Box(0, 255, (2,), np.uint8), [3.0, 255.0]),
        (spaces.MultiBinary(2), [True, False]),
        (spaces.Discrete(3, start=5), np.int32(6)),
        (spaces.MultiDiscrete([3, 4], start=[1, 2]), np.array([2, 3], np.uint8)),
    ],
)
def test_a_value_of_another_dtype_is_taken(space: spaces.Space[Any], value: Any) -> None:
    preprocessor = Preprocessor(space)
    assert preprocessor.layout.unflatten(preprocessor.flatten(value)).tolist() == np.asarray(value).tolist()


class Unwritten(list[float]):
    """A value that is costly to write as text."""

    def __repr__(self) -> str:
        raise AssertionError("nothing is wrong with it")


def test_a_right_observation_is_not_written_as_text() -> None:
    assert Preprocessor(spaces.Box(-1, 1, (2,))).flatten(Unwritten([0.5, 1.0])).tolist() == [0.5, 1.0]
