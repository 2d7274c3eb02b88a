"""Schedulers of sweeps with real trials: reef.tune.trial_schedulers, and searches: reef.tune.optuna_search."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from sweeps import Sweep, when

from reef.run.checkpoint import read_metadata
from reef.run.experiment import CheckpointSettings
from reef.run.reporters.files import read_results

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]
# The reward of an episode is its length: the limit decides which trials are weak.
LIMITS = {"env_config.max_episode_steps": {"grid": [20, 19, 3]}}


@pytest.fixture
def sweep(ray_cluster: Any, tmp_path: Path) -> Sweep:
    return Sweep(tmp_path)


@pytest.mark.parametrize(
    ("scheduler", "ends_at"),
    [
        ({"kind": "hyperBand", "gracePeriod": 2, "reductionFactor": 2, "brackets": 1}, 2),
        ({"kind": "medianStopping", "gracePeriod": 3, "minSamples": 2}, 3),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_the_weak_end_with_a_checkpoint_also_when_the_sweep_is_resumed(
    sweep: Sweep, scheduler: dict[str, Any], ends_at: int
) -> None:
    """The weak trial is the last one: it is compared with what the others did before the process ended."""
    begun = lambda: [*sweep.storage.glob("test/*/trial_0003/result.json")]  # noqa: E731
    thread = when(begun, lambda: os.kill(os.getpid(), signal.SIGTERM))
    tune = {"scheduler": scheduler, "maxConcurrentTrials": 1}
    options: dict[str, Any] = {"tune": tune, "checkpoint": CheckpointSettings(frequency=1), "iterations": 6}
    first = Sweep(sweep.storage).run(LIMITS, **options)
    thread.join()
    summary = sweep.run(LIMITS, resume=True, **options) if first.exit_code else first
    *strong, weak = sweep.trials()
    assert summary.exit_code == 0
    assert [trial["state"] for trial in (*strong, weak)] == ["finished"] * 3
    assert strong[0]["iteration"] == 6
    assert weak["iteration"] == ends_at
    assert weak["reason"] == f"{scheduler['kind']}: weaker than others at iteration {ends_at}"
    assert weak["checkpoint"].endswith(f"checkpoint_{ends_at:06d}")


POPULATION = {"kind": "pbt", "perturbationInterval": 3, "quantileFraction": 0.5, "resampleProbability": 1}
RATES = {"lr": {"choice": [0.02, 0.01, 1e-9]}}


def together(folder: Path) -> dict[str, Any]:
    """Settings with which two trials begin at the same time: one that is through cannot go on from another."""
    folder.mkdir()
    return {"env": "tests.meeting:Meeting", "env_config": {"folder": str(folder), "count": 2, "driver": os.getpid()}}


def test_a_weak_trial_goes_on_from_a_strong_one_with_other_settings(sweep: Sweep, tmp_path: Path) -> None:
    tune = {"scheduler": POPULATION, "numSamples": 2}
    options: dict[str, Any] = {"tune": tune, "checkpoint": CheckpointSettings(frequency=3)}
    summary = sweep.run(RATES, iterations=30, settings=together(tmp_path / "met"), **options)
    assert summary.exit_code == 0
    said = sweep.said.getvalue()
    changes = re.findall(r"(trial_\d+) goes on from (trial_\d+) after iteration (\d+), with lr=(\S+)", said)
    assert changes, said
    assert {int(iteration) for *_, iteration, _ in changes} <= {*range(3, 30, 3)}
    for trial in sweep.trials():
        assert (trial["state"], trial["iteration"]) == ("finished", 30)
        assert sweep.iterations(trial["name"]) == list(range(1, 31)), "its own count goes on"
        last = [*read_results(sweep.folder / trial["name"])][-1]
        assert last["timesteps_total"] == 30 * 64
        own = [change for change in changes if change[0] == trial["name"]]
        if own:
            assert trial["parameters"]["lr"] == float(own[-1][3])
        stats = last["info"]["learner"]["default_policy"]["learner_stats"]
        assert stats["cur_lr"] == trial["parameters"]["lr"]
        assert read_metadata(trial["checkpoint"])["config"]["lr"] == trial["parameters"]["lr"]


def test_a_population_that_was_cut_off_goes_on_with_its_settings(sweep: Sweep, tmp_path: Path) -> None:
    tune = {"scheduler": POPULATION, "numSamples": 2}
    options: dict[str, Any] = {"tune": tune, "checkpoint": CheckpointSettings(frequency=3), "iterations": 150}
    options["settings"] = together(tmp_path / "met")
    first = Sweep(sweep.storage)
    thread = when(lambda: "goes on from" in first.said.getvalue(), lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert first.run(RATES, **options).exit_code == 143
    thread.join()
    before = {trial["name"]: trial["parameters"] for trial in sweep.trials()}
    assert sweep.run(RATES, resume=True, **options).exit_code == 0
    assert all(f"{name} (lr={values['lr']}) begins" in sweep.said.getvalue() for name, values in before.items())
    for trial in sweep.trials():
        assert (trial["state"], trial["iteration"]) == ("finished", 150)
        assert sweep.iterations(trial["name"]) == list(range(1, 151))


SPACE = {
    "lr": {"logUniform": [1e-5, 1e-2]},
    "env_config.max_episode_steps": {"choice": [5, 10, 20]},
    "model.fcnet_hiddens": {"choice": [[4], [8]]},
}


def test_optuna_proposes_what_earlier_trials_suggest_and_follows_the_seed(sweep: Sweep) -> None:
    pytest.importorskip("optuna")
    tune = {"search": "optuna", "numSamples": 2, "maxConcurrentTrials": 1}
    assert sweep.run(SPACE, tune=tune, iterations=1).exit_code == 0
    trials = sweep.trials()
    assert [trial["state"] for trial in trials] == ["finished"] * 2
    for trial in trials:
        assert 1e-5 <= trial["parameters"]["lr"] <= 1e-2
        assert trial["parameters"]["model.fcnet_hiddens"] in ([4], [8])
        assert read_metadata(trial["checkpoint"])["config"]["lr"] == trial["parameters"]["lr"]
    again = Sweep(sweep.storage / "again")
    again.run(SPACE, tune=tune, iterations=1)
    assert [trial["parameters"] for trial in again.trials()] == [trial["parameters"] for trial in trials]


def test_optuna_goes_on_where_it_was(sweep: Sweep) -> None:
    pytest.importorskip("optuna")
    tune = {"search": "optuna", "numSamples": 3, "maxConcurrentTrials": 1}
    begun = lambda: [*sweep.storage.glob("test/*/trial_0002/result.json")]  # noqa: E731
    thread = when(begun, lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert Sweep(sweep.storage).run(SPACE, tune=tune, iterations=30).exit_code == 143
    thread.join()
    before = sweep.trials()
    assert [bool(trial["parameters"]) for trial in before[:2]] == [True, True]
    assert sweep.run(SPACE, tune=tune, iterations=30, resume=True).exit_code == 0
    trials = sweep.trials()
    assert [trial["parameters"] for trial in trials[:2]] == [trial["parameters"] for trial in before[:2]]
    assert [(trial["state"], trial["iteration"]) for trial in trials] == [("finished", 30)] * 3
