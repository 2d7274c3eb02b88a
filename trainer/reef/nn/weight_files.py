"""Reads weights that other programs wrote (safetensors, or a torch `state_dict`), and fits them to a policy."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from reef.errors import CheckpointError, ConfigError, nearest
from reef.types import Array

SAVE = "Save it with torch.save(module.state_dict(), path) or safetensors.torch.save_file(module.state_dict(), path)."
OBJECT = re.compile(r"Unsupported (?:global|class)[^:]*: (?:GLOBAL )?([\w.]+)")  # torch's message for a refused class
FORMATS = {  # other common formats by their first bytes, and what to do
    b"\x89HDF": "an HDF5 file, such as Keras writes. Read it with h5py and call set_weights with its arrays",
    b"\x93NUM": "a NumPy array. Call set_weights with arrays by name",
}


def read_weights(path: str | Path) -> dict[str, Array]:
    """Return the tensors in a file by name, as float32; never runs code from the file.

    Raises CheckpointError if the file is missing, damaged, of another format, or contains anything but named tensors.
    """
    path = Path(path).expanduser()
    if path.is_dir():
        raise CheckpointError(f"{path} is a folder. For a Reef checkpoint use restore(path); else name the file in it.")
    try:
        with path.open("rb") as stream:
            start = stream.read(9)
    except OSError as error:
        raise CheckpointError(f"cannot read the weights {path}: {error.strerror}.") from error
    if foreign := FORMATS.get(start[:4]):
        raise CheckpointError(f"{path} is {foreign}.")
    is_safetensors = path.suffix == ".safetensors" or start[8:] == b"{"
    found = _of_safetensors(path) if is_safetensors else _of_state_dict(path)
    return {name: _as_array(path, name, value) for name, value in found.items()}


def _of_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is no whole safetensors file: {error}. {SAVE}") from error


def _of_state_dict(path: Path) -> Mapping[str, Any]:
    try:
        with warnings.catch_warnings(action="ignore"):
            found: Any = torch.load(path, map_location="cpu", weights_only=True)
    # Errors of many kinds; all of them mean that the file is invalid.
    except Exception as error:
        kind = OBJECT.search(str(error))
        what = (
            f"it holds a {kind[1]}, and loading that would run code" if kind else "it is damaged or of another format"
        )
        raise CheckpointError(f"{path} is no state_dict that holds tensors alone: {what}. {SAVE}") from error
    if not isinstance(found, Mapping) or not all(isinstance(name, str) for name in found):
        raise CheckpointError(f"{path} holds a {type(found).__name__}, expected a state_dict: tensors by name. {SAVE}")
    return found


def _as_array(path: Path, name: str, value: Any) -> Array:
    if not isinstance(value, Tensor):
        inner = f": the keys {sorted(map(str, value))[:5]}" if isinstance(value, Mapping) else ""
        raise CheckpointError(
            f"{path}: {name!r} is a {type(value).__name__}{inner}, expected a tensor. Save the state_dict of the "
            "network alone, without other entries."
        )
    if value.is_complex() or value.layout != torch.strided or value.is_quantized:
        raise CheckpointError(f"{path}: {name!r} is a {value.dtype} tensor, expected real numbers in a dense tensor.")
    return np.asarray(value.detach().to(torch.float32).numpy())


def translated(
    weights: Mapping[str, Array], names: Mapping[str, str], own: Sequence[str], with_tied: Sequence[str]
) -> dict[str, Array]:
    """Return `weights` under the names of a policy's `own` parameters; `names` translates some of them.

    A prefix from a wrapping module, on either side, needs no entry in `names`. `with_tied`: the own names and those of
    parameters that are shared. Raises ConfigError for names that the weights do not have.
    """
    if unknown := sorted(names.keys() - weights.keys()):
        raise ConfigError(f"names: {unknown} are not among the weights, which are {sorted(weights)}.")
    renamed = {names.get(name, name): value for name, value in weights.items()}
    for strip, add in (("", ""), ("", "module."), ("module.", ""), ("_orig_mod.", ""), ("_orig_mod.", "module.")):
        found = {add + name.removeprefix(strip): value for name, value in renamed.items()}
        if found.keys() == set(own) or found.keys() == set(with_tied):
            return {name: found[name] for name in own}
    return renamed


def weight_problems(own: Mapping[str, nn.Parameter], weights: Mapping[str, Array]) -> Iterator[str]:
    """Yield why `weights` do not fit a policy with its `own` parameters, one line per name."""
    for name, parameter in own.items():
        expected = f"expected shape {list(parameter.shape)}"
        if name not in weights:
            yield f"{name}: is missing, {expected}.{nearest(name, weights.keys() - own.keys())}"
        elif (given := np.shape(weights[name])) != parameter.shape:
            yield f"{name}: has shape {list(given)}, {expected}. Give weights of the same spaces and model settings."
        elif parameter.requires_grad and not np.isfinite(weights[name]).all():
            yield f"{name}: has values that are NaN or infinite, expected finite numbers."
    for name in sorted(weights.keys() - own.keys()):
        yield f"{name}: is not a parameter of this policy, leave it out.{nearest(name, own.keys() - weights.keys())}"
