"""What a Gymnasium space means for arrays: one shape, one dtype, and the way there and back.

Box, Discrete, MultiDiscrete and MultiBinary keep their own shape. Dict and Tuple, nested at will, become one float32
vector of their leaves' raw values; networks take it apart again by the recorded leaves. Discrete values are held as
indices from 0, whatever the space's `start` is, so that they can index logits and one-hot rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from reef.errors import EnvironmentError
from reef.types import Array, PolicyId

Space = spaces.Space[Any]
PolicySpaces = dict[PolicyId, tuple[Space, Space]]  # of observations and actions
SUPPORTED = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


@dataclass(frozen=True, slots=True)
class Leaf:
    """One simple space inside a space, and where its values lie in the flat vector."""

    path: tuple[str | int, ...]  # keys of Dict, positions of Tuple; () for a simple space itself
    space: Space
    offset: int  # elements
    size: int  # elements

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the leaf's own value."""
        return self.space.shape or ()

    @property
    def choices(self) -> Array | None:
        """How many indices from 0 each element may have, [size]; None for a Box."""
        if isinstance(self.space, spaces.MultiBinary):
            return np.full(self.size, 2)
        counts = getattr(self.space, "n", getattr(self.space, "nvec", None))
        return None if counts is None else np.reshape(counts, -1)

    @property
    def is_bytes(self) -> bool:
        """Whether it is a Box of bytes from 0 to 255: networks scale them to [0, 1], filters leave them alone."""
        space = self.space
        if not isinstance(space, spaces.Box) or space.dtype != np.uint8:
            return False
        return bool((space.low == 0).all() and (space.high == 255).all())

    @property
    def start(self) -> Any:
        """What a value of the leaf exceeds its index by (Discrete and MultiDiscrete), or 0."""
        return getattr(self.space, "start", 0)


@dataclass(frozen=True, slots=True)
class Layout:
    """How the values of one space lie in arrays."""

    space: Space
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    leaves: tuple[Leaf, ...]
    direct: bool  # a value is already its array: nothing to shift, nothing to gather

    @classmethod
    def of(cls, space: Space) -> Layout:
        """Describe `space`; EnvironmentError names a part that no array can hold (Text, Graph, Sequence, OneOf)."""
        leaves = tuple(_leaves(space, (), 0))
        if isinstance(space, SUPPORTED):
            shifted = bool(np.any(leaves[0].start))
            dtype = np.dtype(np.int64) if isinstance(space, spaces.Discrete) else np.dtype(space.dtype)
            return cls(space, space.shape or (), dtype, leaves, direct=not shifted)
        size = sum(leaf.size for leaf in leaves)
        return cls(space, (size,), np.dtype(np.float32), leaves, direct=False)

    @property
    def size(self) -> int:
        """Elements of one value."""
        return math.prod(self.shape)

    @property
    def action_dtype(self) -> np.dtype[Any]:
        """Of actions as policies choose them: those of any Box are real numbers until an environment gets them."""
        return np.dtype(np.float32) if isinstance(self.space, spaces.Box) else self.dtype

    @property
    def composite(self) -> bool:
        """Whether the space is a Dict or Tuple, held as one vector of leaves."""
        return not isinstance(self.space, SUPPORTED)

    def fits(self, other: Layout) -> bool:
        """Whether a network for the one takes, or chooses, the values of the other: bounds of a Box may differ."""

        def outline(layout: Layout) -> tuple[Any, ...]:
            return layout.shape, [(leaf.path, leaf.shape, np.array(leaf.choices).tolist()) for leaf in layout.leaves]

        return outline(self) == outline(other)

    def flatten(self, value: Any) -> Array:
        """Turn a value of the space into an array of `shape` and `dtype`; a direct value is not copied."""
        if self.direct:
            return np.asarray(value, self.dtype)
        if not self.composite:
            return np.asarray(_indices(self.leaves[0], value), self.dtype)
        flat = np.empty(self.shape, self.dtype)
        for leaf in self.leaves:
            flat[leaf.offset : leaf.offset + leaf.size] = _indices(leaf, _follow(value, leaf.path)).reshape(-1)
        return flat

    def checked(self, value: Any) -> Any:
        """As `flatten`, of what an environment returns; ValueError for another shape, which NumPy would broadcast."""
        flat = value if self.direct else self.flatten(value)
        if getattr(flat, "shape", ()) != self.shape:
            flat = np.asarray(flat)  # perhaps a list
            if flat.shape != self.shape:
                kind = type(value).__name__
                raise ValueError(f"obs is a {kind} of shape {flat.shape}, expected {self.shape} of {self.space}")
        return flat

    def unflatten(self, array: Array) -> Any:
        """Turn an array [..., *shape] into a value of the space, with the space's own dtypes, or a batch of values."""
        if self.direct:
            return array
        if not self.composite:
            return array + self.leaves[0].start
        leaves = iter(self.leaves)
        return _build(self.space, array, leaves)

    def first_impossible(
        self,
        values: Array,  # [..., *shape]
    ) -> tuple[list[int], float, str] | None:
        """The first index that its leaf has not: where it is in [..., size], its value, what it may be."""
        for leaf in self.leaves:
            if leaf.choices is None:
                continue
            flat = values.reshape(*values.shape[: values.ndim - len(self.shape)], self.size)
            part = flat[..., leaf.offset : leaf.offset + leaf.size]
            wrong = np.argwhere((part < 0) | (part >= leaf.choices) | (part != np.trunc(part)))
            if len(wrong):
                *where, element = map(int, wrong[0])
                start = int(np.broadcast_to(leaf.start, leaf.shape).reshape(-1)[element])
                possible = f"{start} to {start + int(leaf.choices[element]) - 1} of {leaf.space}"
                value = float(part[*where, element]) + start
                return [*where, leaf.offset + element], int(value) if value.is_integer() else round(value, 6), possible
        return None


def first_outside(
    layout: Layout,
    values: Array,  # [..., *shape]
) -> tuple[list[int], float, Space] | None:
    """The first value outside the bounds of its Box: where it is in [..., size], the value, the Box."""
    flat = values.reshape(*values.shape[: values.ndim - len(layout.shape)], layout.size)
    for leaf in layout.leaves:
        if isinstance(leaf.space, spaces.Box):
            part = flat[..., leaf.offset : leaf.offset + leaf.size]
            wrong = np.argwhere((part < leaf.space.low.reshape(-1)) | (part > leaf.space.high.reshape(-1)))
            if len(wrong):
                *where, element = map(int, wrong[0])
                return [*where, leaf.offset + element], float(part[*where, element]), leaf.space
    return None


def _leaves(space: Space, path: tuple[str | int, ...], offset: int) -> Iterator[Leaf]:
    if isinstance(space, SUPPORTED):
        yield Leaf(path, space, offset, math.prod(space.shape or ()))
    elif isinstance(space, spaces.Dict | spaces.Tuple):
        for key, child in _children(space):
            for leaf in _leaves(child, (*path, key), offset):
                yield leaf
                offset = leaf.offset + leaf.size
    else:
        raise EnvironmentError(
            f"space{_at(path)} is {space}, which no fixed-size array can hold. Use Box, Discrete, MultiDiscrete, "
            "MultiBinary, or a Dict or Tuple of these."
        )


def _children(space: spaces.Dict | spaces.Tuple[Any]) -> list[tuple[str | int, Space]]:
    if isinstance(space, spaces.Dict):
        return list(space.spaces.items())
    return list(enumerate(space.spaces))


def _at(path: tuple[str | int, ...]) -> str:
    return "".join(f"[{key!r}]" for key in path)


def _follow(value: Any, path: tuple[str | int, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def _indices(leaf: Leaf, value: Any) -> Array:
    """The leaf's value as an array that counts from 0; ValueError where numpy would broadcast it."""
    array = np.asarray(value)
    if array.shape != leaf.shape:
        raise ValueError(f"value{_at(leaf.path)} has the shape {array.shape}, expected {leaf.shape} of {leaf.space}")
    return np.asarray(array - leaf.start)


def _build(space: Space, array: Array, leaves: Iterator[Leaf]) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _build(child, array, leaves) for key, child in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_build(child, array, leaves) for child in space.spaces)
    leaf = next(leaves)
    part = array[..., leaf.offset : leaf.offset + leaf.size].reshape((*array.shape[:-1], *leaf.shape))
    if np.issubdtype(space.dtype, np.integer):
        part = np.rint(part)
    value = part.astype(space.dtype)
    value += leaf.start
    return value[()] if isinstance(space, spaces.Discrete) else value
