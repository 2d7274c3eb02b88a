"""A state as JSON and arrays: `{"$array": key}` stands where an array was."""

from __future__ import annotations

from typing import Any

import numpy as np

from reef.errors import CheckpointError
from reef.types import Array

ARRAY_KEY = "$array"
ARRAY_KINDS = "biuf"  # bool, signed and unsigned integers, floats


def take_arrays_out(value: object, path: str, arrays: dict[str, Array]) -> Any:
    """Copy a state tree with each array replaced by its key in `arrays`, which is its `path` in the tree.

    Raises `CheckpointError` for a value that a checkpoint cannot hold.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray) and value.dtype.kind in ARRAY_KINDS:
        arrays[path] = value if value.flags.c_contiguous else value.copy(order="C")
        return {ARRAY_KEY: path}
    if isinstance(value, list):
        return [take_arrays_out(item, f"{path}/{index}", arrays) for index, item in enumerate(value)]
    if isinstance(value, dict) and ARRAY_KEY not in value and all(isinstance(key, str) for key in value):
        return {
            key: take_arrays_out(item, f"{path}/{key.replace('~', '~0').replace('/', '~1')}", arrays)
            for key, item in value.items()
        }
    kind = f"array of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
    raise CheckpointError(
        f"the state holds {kind} at {path or '/'}: a checkpoint holds dicts with text keys, lists, numbers, text, "
        "null and numeric numpy arrays. Convert it in state()."
    )


def put_arrays_back(tree: Any, arrays: dict[str, Array]) -> Any:
    """The reverse of `take_arrays_out`; raises KeyError for an array that is not there."""
    if isinstance(tree, list):
        return [put_arrays_back(item, arrays) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if ARRAY_KEY in tree:
        return arrays[tree[ARRAY_KEY]]
    return {key: put_arrays_back(item, arrays) for key, item in tree.items()}
