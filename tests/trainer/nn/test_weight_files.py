from __future__ import annotations

import os
import pickle
import pickletools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from reef.errors import CheckpointError
from reef.nn.weight_files import read_weights


class Command:
    """Runs something where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def module() -> nn.Module:
    return nn.Linear(2, 3).to(torch.bfloat16)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_state_dict_is_read_as_float32(tmp_path: Path, zipped: bool) -> None:
    written = module().state_dict()
    torch.save(written, tmp_path / "net.pt", _use_new_zipfile_serialization=zipped)
    found = read_weights(tmp_path / "net.pt")
    assert {name: value.shape for name, value in found.items()} == {"weight": (3, 2), "bias": (3,)}
    assert found["weight"].dtype == np.float32
    assert np.array_equal(found["weight"], written["weight"].float().numpy())


@pytest.mark.parametrize("name", ["net.safetensors", "net"])
def test_safetensors_are_read_whatever_their_name(tmp_path: Path, name: str) -> None:
    written = module().state_dict()
    save_file(written, tmp_path / name)
    assert np.array_equal(read_weights(str(tmp_path / name))["bias"], written["bias"].float().numpy())


@pytest.mark.parametrize(
    ("write", "told"),
    [
        (lambda path: torch.save(module(), path), r"holds a torch\.nn\.modules\.linear\.Linear, and loading that"),
        (lambda path: torch.save({"model": module().state_dict()}, path), r"'model' is a \w+: the keys \['bias'"),
        (lambda path: torch.save([torch.zeros(2)], path), "holds a list, expected a state_dict"),
        (lambda path: torch.save({"a": torch.zeros(2, dtype=torch.complex64)}, path), "'a' is a torch.complex64"),
        (
            lambda path: torch.save({"a": torch.eye(2).to_sparse()}, path),
            "'a' is a .* in a dense tensor",
        ),
        (lambda path: path.write_text("weights"), "damaged or of another format"),
        (lambda path: path.write_bytes(b""), "damaged or of another format"),
        (lambda path: path.write_bytes(b"\x89HDF\r\n"), "HDF5 file.*h5py"),
        (lambda path: path.mkdir(), r"is a folder.*restore\(path\)"),
        (lambda path: None, "No such file"),
    ],
)
def test_what_holds_no_tensors_by_name_is_refused(tmp_path: Path, write: Callable[[Path], Any], told: str) -> None:
    write(tmp_path / "net.pt")
    with pytest.raises(CheckpointError, match=told):
        read_weights(tmp_path / "net.pt")


def test_a_safetensors_file_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    save_file(module().state_dict(), path)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(CheckpointError, match="no whole safetensors file"):
        read_weights(path)


@pytest.mark.parametrize("with_torch", [True, False])
def test_no_code_of_a_file_is_run(tmp_path: Path, with_torch: bool) -> None:
    ran, path = tmp_path / "ran", tmp_path / "net.pt"
    weights = {"weight": torch.zeros(2), "more": Command(ran)}
    if with_torch:
        torch.save(weights, path)
    else:
        path.write_bytes(pickletools.optimize(pickle.dumps(weights, protocol=2)))
    with pytest.raises(CheckpointError, match="no state_dict that holds tensors alone"):
        read_weights(path)
    assert not ran.exists()
