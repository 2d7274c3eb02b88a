from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from reef.run.reporters.reporter import Run
from reef.run.reporters.tensorboard import TensorBoardEvents
from reef.run.stopping import StopConditions


def write(folder: Path, *steps: int, **fields: Any) -> None:
    run = Run(folder=folder, algorithm="PPO", environment="CartPole-v1", config={}, stop=StopConditions({}), **fields)
    events = TensorBoardEvents()
    events.start(run)
    for step in steps:
        events.report(
            {"timesteps_total": step, "timestamp": 10, "reward": step / 2, "none": None, "a": {"b": 1}, "done": True}
        )
    events.finish(None)


def read(folder: Path) -> dict[str, list[tuple[int, float]]]:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_every_number_becomes_a_curve(tmp_path: Path) -> None:
    write(tmp_path, 10, 20)
    curves = read(tmp_path)
    assert curves["reward"] == [(10, 5.0), (20, 10.0)]
    assert curves["a/b"] == [(10, 1.0), (20, 1.0)]
    assert "none" not in curves
    assert "done" not in curves


def test_resuming_takes_back_the_curve_beyond_the_checkpoint(tmp_path: Path) -> None:
    write(tmp_path, 10, 20, 30)
    write(tmp_path, 21, restored_timesteps=20)
    assert [step for step, _ in read(tmp_path)["reward"]] == [10, 20, 21]


def test_without_tensorboard_there_is_one_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto", None)
    with caplog.at_level(logging.WARNING):
        write(tmp_path, 10, 20)
    assert [record.message.count("pip install tensorboard") for record in caplog.records] == [1]
    assert not list(tmp_path.iterdir())
