"""Writes a finished policy as a file that other programs run, and compares what it does there."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import torch
from safetensors.numpy import load_file, save

from reef.errors import ConfigError, StorageError, sentence
from reef.serving.comparison import compare, sampled
from reef.serving.finished import FinishedPolicy
from reef.serving.network import ActingNetwork, parts_of
from reef.types import Array

ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")


def export_policy(finished: FinishedPolicy, path: str | Path, form: str) -> None:
    """Write the policy to `path`, which is replaced, as "onnx", "torchscript" or "safetensors" (weights alone).

    Raises:
        ConfigError: a package is missing, the policy calls functions of a person's own, it cannot be written so, or the
            file acts otherwise; what was at `path` stays.
        StorageError: the file cannot be written.
    """
    write = {"onnx": _write_onnx, "torchscript": _write_torchscript, "safetensors": _write_safetensors}[form]
    if form == "onnx" and (missing := [name for name in ONNX_PACKAGES if find_spec(name) is None]):
        raise ConfigError(f"ONNX needs {', '.join(missing)}, not installed here: pip install 'reef[onnx]'.")
    place = Path(path)
    if place.is_dir():
        raise StorageError(f"{place}: is a folder. Give a file.")
    temporary = place.with_name(f".{place.name}.{os.getpid()}.tmp")
    try:
        temporary.touch()
        write(finished, temporary)
        temporary.replace(place)
    except OSError as error:
        raise StorageError(f"{place}: cannot be written: {error.strerror or error}.") from error
    finally:
        temporary.unlink(missing_ok=True)


def _write_safetensors(finished: FinishedPolicy, path: Path) -> None:
    weights = finished.policy.get_weights()
    path.write_bytes(save(weights))
    read = load_file(path)
    if any((read[name] != values).any() for name, values in weights.items()):
        raise ConfigError("the file holds other weights than the policy. Is the disk sound?")


def _write_onnx(finished: FinishedPolicy, path: Path) -> None:
    network = ActingNetwork(finished)
    examples = _examples(finished, network)
    rows = {0: torch.export.Dim("N")}
    with _exporting("ONNX"):
        torch.onnx.export(
            network,
            examples,
            str(path),
            input_names=network.input_names,
            output_names=network.output_names,
            dynamic_shapes=(tuple(rows for _ in examples),),
            external_data=False,
            dynamo=True,
            verbose=False,
        )
    import onnxruntime

    with _exporting("ONNX"):
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def run(inputs: Sequence[Array]) -> Sequence[Array]:
        with _exporting("ONNX"):
            outputs: list[Array] = session.run(None, dict(zip(network.input_names, inputs, strict=True)))
            return outputs

    compare(finished, network, run)


def _write_torchscript(finished: FinishedPolicy, path: Path) -> None:
    network = ActingNetwork(finished)
    with _exporting("TorchScript"), torch.no_grad():
        traced = torch.jit.trace(network, _examples(finished, network), check_trace=False)  # type: ignore[no-untyped-call]
        torch.jit.save(traced, str(path))
        loaded = torch.jit.load(str(path))  # type: ignore[no-untyped-call]

    def run(inputs: Sequence[Array]) -> list[Array]:
        with _exporting("TorchScript"), torch.inference_mode():
            return [output.numpy() for output in loaded(*map(torch.from_numpy, inputs))]

    compare(finished, network, run)


@contextmanager
def _exporting(form: str) -> Iterator[None]:
    """Say what torch cannot write in one sentence, and leave out what it tells its own developers."""
    log = logging.getLogger("torch")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except OSError:
        raise
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        raise ConfigError(
            f"this policy cannot be written as {form}: {type(error).__name__}: {sentence(first)} Use reef serve."
        ) from error
    finally:
        log.setLevel(before)


def _examples(finished: FinishedPolicy, network: ActingNetwork) -> tuple[torch.Tensor, ...]:
    """Inputs of a few rows, by which the network is recorded."""
    finished.policy.move_to(torch.device("cpu"))
    network.eval()
    parts = parts_of(network.observations, sampled(finished, 3))
    state = finished.policy.initial_state(3)
    return tuple(torch.from_numpy(part) for part in (*parts, *state.values()))
