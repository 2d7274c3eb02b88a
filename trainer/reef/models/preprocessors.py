"""Preprocessors: from a value of an observation space to one array, with indices as one-hot vectors.

Networks need none: they read the flat arrays of `reef.spaces.Layout`. `Preprocessor.observations` takes both forms.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from reef.errors import ConfigError, EnvironmentError
from reef.spaces import Layout, Leaf, Space
from reef.types import Array


class Preprocessor:
    """From values of one observation space to arrays of `shape`.

    A Box or MultiBinary keeps its array. Discrete and MultiDiscrete become one-hot vectors, Dict and Tuple one vector
    of the arrays of their parts.
    """

    def __init__(self, space: Space) -> None:
        """Raises EnvironmentError for a space that no fixed-size array can hold."""
        self.layout = Layout.of(space)
        self._plain = isinstance(space, spaces.Box | spaces.MultiBinary)
        self.shape = self.layout.shape if self._plain else (sum(map(_width, self.layout.leaves)),)

    @property
    def size(self) -> int:
        """Elements of one array."""
        return int(np.prod(self.shape))

    def transform(self, observation: Any) -> Array:
        """A value of the space -> its array of `shape`; ConfigError for another value."""
        flat = self.flatten(observation)
        if self._plain:
            return flat
        row = flat.reshape(1, -1)
        hot: Array = np.concatenate(
            [_one_hot(leaf, part) for leaf, part in self._parts(row)], axis=1, dtype=np.float32
        )[0]
        return hot

    def flatten(self, observation: Any) -> Array:
        """A value of the space -> the array of `layout`, where indices are numbers; ConfigError for another value."""
        space = self.layout.space
        try:
            flat = self.layout.flatten(observation)
        except (ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
            raise ConfigError(
                f"the observation is no value of {space} ({error}). It is the first that reset() and step() return."
            ) from error
        if flat.shape != self.layout.shape:
            raise ConfigError(f"the observation has shape {flat.shape}, expected {self.layout.shape} of {space}")
        if not np.isfinite(flat).all():
            raise ConfigError(
                "the observation has values that are NaN or infinite, of which no network makes an action."
            )
        self._check_whole(observation, flat)
        if found := self.layout.first_impossible(flat):
            raise ConfigError(f"the observation {observation!r} has {_impossible(*found)}")
        return flat

    def observations(self, batch: Any) -> Array:
        """N observations, each with a first axis of length N, as the network takes them: [N, *obs] of `layout`.

        They are the space's own values, arrays of `shape`, or arrays of the layout already. Raises ConfigError for
        arrays of another shape.
        """
        rows = self._rows(batch)
        if not np.isfinite(rows).all():
            raise ConfigError("the observations have values that are NaN or infinite.")
        if found := self.layout.first_impossible(rows):
            raise ConfigError(f"the observations have {_impossible(*found)}")
        return rows

    def _rows(self, batch: Any) -> Array:
        layout = self.layout
        if layout.composite and isinstance(batch, Mapping | tuple):
            parts = [self._leaf_rows(leaf, batch) for leaf in layout.leaves]
            return np.concatenate(parts, axis=1).astype(layout.dtype)
        rows = np.asarray(batch)
        if rows.ndim == 1 + len(layout.shape) and rows.shape[1:] == layout.shape:
            return rows.astype(layout.dtype, copy=False)
        if rows.ndim == 1 + len(self.shape) and rows.shape[1:] == self.shape:
            return self._indices(rows)
        forms = dict.fromkeys([("N", *layout.shape), ("N", *self.shape)])
        expected = " or ".join(map(str, forms))
        raise ConfigError(f"the observations have shape {rows.shape}, expected {expected}: a batch of them.")

    def _leaf_rows(self, leaf: Leaf, batch: Any) -> Array:
        """[N, leaf.size]: one part of a batch of Dict or Tuple values."""
        where = "".join(f"[{key!r}]" for key in leaf.path)
        for key in leaf.path:
            try:
                batch = batch[key]
            except (KeyError, IndexError, TypeError) as error:
                raise ConfigError(f"the observations have no part {where} of {self.layout.space}") from error
        values = np.asarray(batch)
        if values.shape[1:] != leaf.shape or values.ndim != 1 + len(leaf.shape):
            expected = ("N", *leaf.shape)
            raise ConfigError(
                f"the observations{where} have shape {values.shape}, expected {expected}: a batch of them."
            )
        return np.reshape(values - leaf.start, (len(values), -1))

    def _indices(self, rows: Array) -> Array:
        """Arrays of `shape` [N, *shape] -> [N, *obs] of the layout."""
        found, offset = [], 0
        for leaf in self.layout.leaves:
            part = rows[:, offset : offset + _width(leaf)]
            offset += _width(leaf)
            found.append(np.stack([hot.argmax(1) for hot in _split(leaf, part)], axis=1) if _is_hot(leaf) else part)
        flat: Array = np.concatenate(found, axis=1).astype(self.layout.dtype)
        return flat.reshape(len(rows), *self.layout.shape)

    def _parts(self, rows: Array) -> Iterator[tuple[Leaf, Array]]:
        """The leaves, each with its columns of the flat rows [N, layout.size]."""
        for leaf in self.layout.leaves:
            yield leaf, rows[:, leaf.offset : leaf.offset + leaf.size]

    def _check_whole(self, observation: Any, flat: Array) -> None:
        """Raise ConfigError where the dtype of whole numbers changed a value, such as 300 to the byte 44."""
        if self.layout.composite or flat.dtype.kind not in "iu":
            return
        given = np.asarray(observation)
        if given.dtype != flat.dtype and np.any(changed := given != self.layout.unflatten(flat)):
            raise ConfigError(f"the observation has {given[changed].flat[0]}, which {flat.dtype} cannot hold.")


SCREEN = (210, 160, 3)  # the frame of most Atari games
BORDER = 25  # its rows above and below that hardly any game draws in


def require_opencv() -> None:
    """Raise EnvironmentError where OpenCV, which makes frames smaller, is not installed."""
    if importlib.util.find_spec("cv2") is None:
        raise EnvironmentError(
            "frames of Atari games need OpenCV, which is not installed: `pip install 'reef[atari]'`."
        )


class GenericPixelPreprocessor:
    """From frames of Atari games [height, width, 3] or [height, width] to arrays of `shape`, [dim, dim, channels].

    The border is cut off. Values are bytes, which networks scale to 0..1; with `zero_mean` they are float32 in -1..1.
    """

    def __init__(self, space: Space, options: Mapping[str, Any] | None = None) -> None:
        """`options`: of the model, `dim` (84), `grayscale` (False) and `zero_mean` (True).

        Raises ConfigError for a space without frames, EnvironmentError without OpenCV.
        """
        require_opencv()
        if not isinstance(space, spaces.Box) or len(space.shape) not in (2, 3) or min(space.shape[:2]) <= 2 * BORDER:
            raise ConfigError(f"{space} has no frames of an Atari game: use get_preprocessor({space}).")
        given = {"dim": 84, "grayscale": False, "zero_mean": True, **(options or {})}
        self._dim, self._zero_mean = int(given["dim"]), bool(given["zero_mean"])
        colours = space.shape[2] if len(space.shape) == 3 else 1
        self._to_gray = bool(given["grayscale"]) and colours > 1
        self._expected = space.shape
        self.shape = (self._dim, self._dim, 1 if self._to_gray else colours)

    @property
    def size(self) -> int:
        """Elements of one array."""
        return int(np.prod(self.shape))

    def transform(self, observation: Any) -> Array:
        """A frame -> its array of `shape`; ConfigError for one of another shape."""
        import cv2

        frame = np.asarray(observation)
        if frame.shape != self._expected:
            raise ConfigError(f"the observation has shape {frame.shape}, expected {self._expected}: one frame.")
        small: Any = frame[BORDER:-BORDER]
        # In two steps, as a pixel that falls between those of a small frame would vanish.
        for dim in dict.fromkeys((max(self._dim, 84), self._dim)):
            small = cv2.resize(small, (dim, dim), interpolation=cv2.INTER_AREA)
        pixels = small.mean(axis=2) if self._to_gray else small
        pixels = np.reshape(pixels, self.shape)
        if self._zero_mean:
            return ((pixels.astype(np.float32) - 128) / 128).astype(np.float32)
        return pixels.astype(np.uint8)


def get_preprocessor(space: Space) -> type[Preprocessor] | type[GenericPixelPreprocessor]:
    """The class whose objects preprocess the values of `space`; EnvironmentError for one that has none."""
    if isinstance(space, spaces.Box) and space.shape == SCREEN and space.dtype == np.uint8:
        return GenericPixelPreprocessor
    Preprocessor(space)
    return Preprocessor


def _impossible(where: list[int], value: float, possible: str) -> str:
    return f"{value} at index {where}, expected {possible}."


def _is_hot(leaf: Leaf) -> bool:
    return isinstance(leaf.space, spaces.Discrete | spaces.MultiDiscrete)


def _width(leaf: Leaf) -> int:
    """Elements of a leaf in the array of a preprocessor."""
    return sum(_counts(leaf)) if _is_hot(leaf) else leaf.size


def _counts(leaf: Leaf) -> list[int]:
    """How many values each index of the leaf may have."""
    return [] if leaf.choices is None else leaf.choices.tolist()


def _one_hot(leaf: Leaf, rows: Array) -> Array:
    """[N, leaf.size] -> [N, width]."""
    if not _is_hot(leaf):
        return rows
    return np.concatenate([np.eye(n)[rows[:, i].astype(int)] for i, n in enumerate(_counts(leaf))], axis=1)


def _split(leaf: Leaf, rows: Array) -> list[Array]:
    """[N, width] -> [N, n] for each index of the leaf."""
    return np.split(rows, np.cumsum(_counts(leaf))[:-1], axis=1)
