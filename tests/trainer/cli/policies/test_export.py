"""`reef export`: files of several forms at once, and wrong use."""

from __future__ import annotations

from pathlib import Path

import pytest
from finished import checkpoint_of, ppo

from reef.cli.main import main
from reef.cli.policies.export import FORMS


def test_each_form_is_written_to_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = checkpoint_of(ppo(), tmp_path / "c")
    forms = [argument for form in ("torchscript", "safetensors") for argument in (f"--{form}", str(tmp_path / form))]
    assert main(["export", checkpoint, *forms]) == 0
    said = capsys.readouterr().out
    for form in ("torchscript", "safetensors"):
        assert f"policy default_policy of {checkpoint} written to {tmp_path / form}\n" in said
        assert (tmp_path / form).stat().st_size


def test_wrong_use_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = checkpoint_of(ppo(), tmp_path / "c")
    assert main(["export", checkpoint]) == 2
    assert "give a file to write, with --onnx FILE or --torchscript FILE or --safetensors" in capsys.readouterr().err
    for arguments, problem in (
        ([str(tmp_path / "nowhere"), "--onnx", "a"], "nowhere"),
        ([checkpoint, "--torchscript", str(tmp_path)], f"{tmp_path}: is a folder. Give a file."),
        ([checkpoint, "--torchscript", "a", "--policy", "b"], "PolicyID 'b' not found; there is ['default_policy']"),
    ):
        assert main(["export", *arguments]) == 2
        assert problem in capsys.readouterr().err
    assert list(FORMS) == ["onnx", "torchscript", "safetensors"]
