"""Values of a space as Minari stores them, and as steps have them."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reef.errors import ConfigError
from reef.offline.steps import Column, refuse
from reef.types import Array

Stored = Any  # an array [N, ...], texts or packed images [N], or a mapping of these by the names of parts


def values_of(
    space: Any,  # as Minari writes it to JSON
    stored: Stored,
    *,
    jpeg: bool,
) -> Column:
    """The values [N, ...] of a simple space; of a Dict or a Tuple a list of N values. ValueError where they differ."""
    parts = space.get("subspaces")
    if parts is None:
        return _simple(space, stored, jpeg=jpeg)
    is_dict = isinstance(parts, Mapping)
    named: Mapping[str, Any] = parts if is_dict else {str(index): part for index, part in enumerate(parts)}
    if not isinstance(stored, Mapping) or named.keys() - stored.keys():
        refuse(f"it does not have the parts {', '.join(named)} of its space")
    columns = [values_of(part, stored[name], jpeg=jpeg) for name, part in named.items()]
    rows = zip(*columns, strict=True)
    return [dict(zip(named, row, strict=True)) for row in rows] if is_dict else [list(row) for row in rows]


def _simple(space: Any, stored: Stored, *, jpeg: bool) -> Column:
    shape = _shape(space)
    if isinstance(stored, Mapping):
        refuse(f"it has the parts {', '.join(stored)}, expected values of one space")
    if jpeg and _may_be_image(space, shape):
        return _images(stored, shape)
    if not isinstance(stored, np.ndarray) or stored.dtype.kind not in "biuf":
        refuse("it holds something that is no number")
    return stored.reshape(len(stored), *shape)


def _shape(space: Any) -> tuple[int, ...]:
    if space["type"] == "Box":
        return tuple(space["shape"])
    if space["type"] == "MultiDiscrete":
        return np.shape(space["nvec"])
    if space["type"] == "MultiBinary":
        return (space["n"],) if isinstance(space["n"], int) else tuple(space["n"])
    if space["type"] == "Discrete":
        return ()
    return refuse(f"it is of the space {space['type']}, which no array can hold")


def _may_be_image(space: Any, shape: tuple[int, ...]) -> bool:
    """Whether Minari packs values of the space: bytes from 0 to 255 of at least 32 by 32."""
    is_large = len(shape) in (2, 3) and min(shape[:2]) >= 32
    if not is_large or space.get("dtype") != "uint8":
        return False
    return bool(np.min(space["low"]) == 0 and np.min(space["high"]) == 255)


def _images(stored: Sequence[Any], shape: tuple[int, ...]) -> Array:
    """[N, *shape] of N images that are packed as JPEG, which has lost details of them; ConfigError without Pillow."""
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        raise ConfigError("it has images packed as JPEG, which `pip install 'reef[minari]'` can read") from error

    images = np.empty((len(stored), *shape), np.uint8)
    for index, packed in enumerate(stored):
        try:
            # The size is known before the image is unpacked.
            with Image.open(io.BytesIO(bytes(packed)), formats=["JPEG"]) as image:
                if image.size != (shape[1], shape[0]):
                    refuse(f"an image is {image.size[0]} wide and {image.size[1]} high, expected the shape {shape}")
                images[index] = np.asarray(image)
        except (OSError, SyntaxError, TypeError, Image.DecompressionBombError) as error:
            raise ValueError(f"an image is no JPEG: {error}") from error
    return images
