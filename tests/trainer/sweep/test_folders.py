"""What the reporters of a trial are called with: reef.sweep.folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reef import PPOConfig
from reef.run.experiment import CheckpointSettings
from reef.run.process.identity import Claim
from reef.run.reporters.reporter import Reporter, Run
from reef.run.stopping import StopConditions
from reef.sweep.folders import Order, TrialFolders

NAME, STOP = "trial_0001", {"training_iteration": 2}


class Trial:
    """The folder of a sweep with one trial, whose own reporter notes its calls."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.calls = folder, []
        calls: list[Any] = self.calls
        folder.mkdir()

        class Notes(Reporter):
            """Made in a function: no path names it."""

            def start(self, run: Run) -> None:
                calls.append(("start", run.full_name, run.sweep))

            def report(self, result: Any) -> None:
                calls.append(("report", result["training_iteration"]))

            def finish(self, summary: Any) -> None:
                calls.append(("finish", summary and (summary.exit_code, summary.reason, summary.result)))

        config = PPOConfig().environment("CartPole-v1").debugging(logger_creator=Notes)
        self.config = config
        self.files = TrialFolders(folder, {NAME: config}, STOP, CheckpointSettings(), Claim())

    def start(self) -> None:
        folder, config = self.folder / NAME, self.config.to_dict()
        run = Run(folder=folder, algorithm="PPO", environment="CartPole-v1", config=config, stop=StopConditions(STOP))
        self.files.start(NAME, run)

    def report(self, iteration: int) -> dict[str, Any]:
        result = {"training_iteration": iteration, "timesteps_total": 16 * iteration, "timestamp": 0}
        self.files.report(NAME, result)
        return result


def test_reporters_of_a_trial_end_before_it_begins_again_and_learn_how_it_ended(tmp_path: Path) -> None:
    trial = Trial(tmp_path / "sweep_a")
    trial.start()
    trial.report(1)
    trial.start()
    last = trial.report(2)
    trial.files.finish(NAME, Order("training_iteration 2 >= 2", finished=True))
    begun = ("start", "sweep_a_trial_0001", "sweep_a")
    assert trial.calls == [
        begun, ("report", 1), ("finish", None), begun, ("report", 2),
        ("finish", (0, "training_iteration 2 >= 2", last)),
    ]  # fmt: skip


@pytest.mark.parametrize(("signal", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_a_trial_that_is_called_off_ends_with_the_code_of_the_signal(tmp_path: Path, signal: str, code: int) -> None:
    trial = Trial(tmp_path / "sweep_a")
    trial.start()
    trial.files.finish(NAME, Order(signal, finished=False))
    assert trial.calls[-1] == ("finish", (code, signal, None))


def test_the_reporters_of_a_trial_that_fails_are_finished(tmp_path: Path) -> None:
    trial = Trial(tmp_path / "sweep_a")
    trial.start()
    trial.files.fail(NAME, "out of memory")
    assert trial.calls[-1] == ("finish", None)
    assert trial.files.failure(NAME) == "out of memory"
