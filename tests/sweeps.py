"""Sweeps of tiny trials, for tests."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reef.algorithms.ppo import PPOConfig
from reef.api.tune import Tune
from reef.run.experiment import CheckpointSettings
from reef.run.prometheus import RunState
from reef.run.reporters.files import read_results
from reef.sweep.plan import Plan
from reef.sweep.progress import SweepSummary
from reef.sweep.record import FILE
from reef.tune.sweep import run_sweep

SMALL: dict[str, Any] = {
    "env": "CartPole-v1",
    "train_batch_size": 64,
    "sgd_minibatch_size": 32,
    "num_sgd_iter": 1,
    "model": {"fcnet_hiddens": [8]},
    "seed": 1,
    "num_cpus_for_local_worker": 1,
}


class Sweep:
    """Runs of one sweep in one folder."""

    def __init__(self, storage: Path) -> None:
        self.storage, self.said, self.run_state = storage, io.StringIO(), RunState()

    def run(self, parameters: dict[str, Any], iterations: int = 2, **options: Any) -> SweepSummary:
        fields = {"parameters": parameters} | options.pop("tune", {})
        base = PPOConfig.from_dict(SMALL | options.pop("settings", {}))
        stop = {"training_iteration": iterations}
        return run_sweep(
            Plan(Tune.model_validate(fields), base, stop),
            stop=stop,
            checkpoint=options.pop("checkpoint", CheckpointSettings()),
            name="test",
            storage_path=self.storage,
            run_state=self.run_state,
            stream=self.said,
            **options,
        )

    @property
    def folder(self) -> Path:
        (folder,) = (self.storage / "test").iterdir()
        return folder

    def trials(self) -> list[dict[str, Any]]:
        trials: list[dict[str, Any]] = json.loads((self.folder / FILE).read_text())["trials"]
        return trials

    def iterations(self, trial: str) -> list[int]:
        return [result["training_iteration"] for result in read_results(self.folder / trial)]


def when(condition: Callable[[], Any], action: Callable[[], None]) -> threading.Thread:
    def watch() -> None:
        deadline = time.monotonic() + 150
        while not condition():
            if time.monotonic() > deadline:
                return  # the test will say what is not as it should be
            time.sleep(0.02)
        action()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread
