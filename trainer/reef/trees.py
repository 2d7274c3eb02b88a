"""A state as JSON and arrays: `{"$array": key}` stands where an array was. Also any value as JSON, for people."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from reef.errors import CheckpointError, DamagedCheckpointError
from reef.types import Array

ARRAY_KEY = "$array"
ARRAY_KINDS = "biuf"  # bool, signed and unsigned integers, floats
USE_ANOTHER = "Use another checkpoint, such as the one before."
LARGEST = 2**128  # of a random generator's state
KIND_NAMES = {
    dict: "a mapping",
    list: "a list",
    str: "a text",
    bool: "true or false",
    int: "a whole number, 0 or more",
    float: "a number",
}


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
        return {key: take_arrays_out(item, f"{path}/{_escaped(key)}", arrays) for key, item in value.items()}
    kind = f"array of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
    raise CheckpointError(
        f"the state holds {kind} at {path or '/'}: a checkpoint holds dicts with text keys, lists, numbers, text, "
        "null and numeric numpy arrays. Convert it in state()."
    )


def put_arrays_back(tree: Any, arrays: Mapping[str, Array]) -> Any:
    """The reverse of `take_arrays_out`.

    Raises `CheckpointError` unless each of `arrays` stands exactly where it was.
    """
    left = dict(arrays)
    state = _with_arrays(tree, "", left)
    if left:
        raise DamagedCheckpointError(f"the array {min(left)!r} belongs nowhere in the state.")
    return state


def _with_arrays(tree: Any, path: str, left: dict[str, Array]) -> Any:
    if isinstance(tree, list):
        return [_with_arrays(item, f"{path}/{index}", left) for index, item in enumerate(tree)]
    if not isinstance(tree, dict):
        return tree
    if ARRAY_KEY in tree:
        if tree != {ARRAY_KEY: path} or path not in left:
            raise DamagedCheckpointError(f"the array at {path or '/'} is not there.")
        array = left.pop(path)
        if array.dtype.kind not in ARRAY_KINDS:
            raise DamagedCheckpointError(f"the array at {path} is of {array.dtype}, expected numbers.")
        return array
    return {key: _with_arrays(item, f"{path}/{_escaped(key)}", left) for key, item in tree.items()}


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def require_like(stored: Any, own: Any, key: str, *, lengths: bool = True, optional: Collection[str] = ()) -> None:
    """Raise `CheckpointError` where the state `stored` could not take the place of `own`.

    It has to have the same keys and types, arrays of the same dtype and, with `lengths`, shape, finite numbers, and no
    count below 0. What is null or empty in `own` says nothing about what may be in it.
    """
    if isinstance(own, dict):
        if not isinstance(stored, dict):
            raise _unlike(stored, own, key)
        for name, value in own.items():
            place = f"{key}/{name}" if key else name
            if name in stored:
                require_like(stored[name], value, place, lengths=lengths, optional=optional)
            elif name not in optional:
                raise DamagedCheckpointError(f"{place} is missing. {USE_ANOTHER}")
    elif isinstance(own, np.ndarray):
        alike = isinstance(stored, np.ndarray) and (stored.dtype, stored.ndim) == (own.dtype, own.ndim)
        if not alike or (lengths and stored.shape != own.shape):
            raise _unlike(stored, own, key)
        if stored.dtype.kind == "f" and np.isfinite(own).all() and not np.isfinite(stored).all():
            raise DamagedCheckpointError(f"{key} holds NaN or infinite numbers. {USE_ANOTHER}")
    elif own is not None and not _is_such(stored, own):
        raise _unlike(stored, own, key)


def _is_such(stored: Any, own: Any) -> bool:
    if isinstance(own, float):
        return type(stored) in (int, float) and -LARGEST < stored < LARGEST
    if type(own) is int:
        return type(stored) is int and min(own, 0) <= stored < LARGEST
    return type(stored) is type(own)


def _unlike(stored: Any, own: Any, key: str) -> CheckpointError:
    expected = _described(own) if isinstance(own, np.ndarray) else KIND_NAMES.get(type(own), type(own).__name__)
    return DamagedCheckpointError(f"{key or 'the state'} is {_described(stored)}, expected {expected}. {USE_ANOTHER}")


def _described(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} with shape {list(value.shape)}"
    text = repr(value)
    return text if len(text) <= 60 else f"a {type(value).__name__}"


def json_safe(value: object) -> Any:
    """`value` as JSON values: numpy becomes plain, NaN and infinities null, anything unknown its text."""
    if value is None or isinstance(value, bool | str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, np.generic | np.ndarray):
        return json_safe(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): json_safe(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [json_safe(item) for item in value]
    return str(value)
