"""Sweeps with real trials on a real Ray: to the end, ended early, failing, cut off and gone on with."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from sweeps import Sweep, when

from reef import PPOConfig
from reef.errors import CheckpointError, ConfigError, TrainingError, WorkerError
from reef.run.checkpoint import find_checkpoint, read_metadata
from reef.run.experiment import CheckpointSettings
from reef.run.reporters.files import read_results
from reef.tune.sweep import check_logger

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]


@pytest.fixture
def sweep(ray_cluster: Any, tmp_path: Path) -> Sweep:
    return Sweep(tmp_path)


def test_every_trial_trains_in_a_folder_of_its_own_and_the_best_is_told(sweep):
    summary = sweep.run({"lr": {"grid": [0.01]}}, tune={"numSamples": 2}, iterations=3)
    assert (summary.exit_code, summary.reason.split(";")[0]) == (0, "2 trials: 2 finished")
    trials = sweep.trials()
    assert [trial["state"] for trial in trials] == ["finished"] * 2
    assert {trial["reason"] for trial in trials} == {"training_iteration 3 >= 3"}
    for repetition, trial in enumerate(trials):
        folder = sweep.folder / trial["name"]
        names = {file.name for file in folder.iterdir()}
        assert {"params.json", "result.json", "progress.csv", "learning_curve.png"} <= names
        params = json.loads((folder / "params.json").read_text())
        assert (params["lr"], params["seed"]) == (trial["parameters"]["lr"], 1 + repetition)
        assert sweep.iterations(trial["name"]) == [1, 2, 3]
        assert trial["checkpoint"] == str(folder / "checkpoint_000003")
        assert read_metadata(trial["checkpoint"])["config"]["lr"] == trial["parameters"]["lr"]
    best = max(trials, key=lambda trial: trial["metric"])
    assert summary.best is not None and summary.best.name == best["name"]
    progress = sweep.run_state.progress()
    assert progress["bestTrial"]["name"] == best["name"]
    assert progress["bestTrial"]["checkpoint"] == best["checkpoint"] == progress["checkpoint"]["path"]
    assert progress["trials"] == {"total": 2, "running": 0, "finished": 2, "failed": 0}
    assert (progress["training"]["iteration"], progress["training"]["timesteps"]) == (6, 6 * 64)
    assert progress["training"]["rewardMean"] == best["metric"]
    assert {family.name for family in sweep.run_state.collect()} >= {"reef_sweep_trials", "reef_sweep_best_metric"}
    # equal settings and seed give equal results
    same = Sweep(sweep.storage / "again")
    same.run({"lr": {"grid": [0.01]}}, tune={"numSamples": 2, "maxConcurrentTrials": 1}, iterations=3)
    assert [trial["metric"] for trial in same.trials()] == [trial["metric"] for trial in trials]


def test_a_logger_that_cannot_be_sent_is_refused():
    lock = threading.Lock()
    with pytest.raises(ConfigError, match="logger_creator=.*cannot be sent to the process that writes .*thread.lock"):
        check_logger(PPOConfig().debugging(logger_creator=lambda: lock))
    check_logger(PPOConfig().debugging(logger_creator=lambda: None))


def test_trials_have_workers_evaluations_and_learners_inside_their_room(sweep):
    workers = {
        "num_rollout_workers": 1,
        "num_learner_workers": 1,
        "evaluation_num_workers": 1,
        "evaluation_interval": 1,
        "evaluation_duration": 1,
    }
    summary = sweep.run(
        {"lr": {"grid": [0.01, 0.001]}},
        settings=workers | {"recreate_failed_workers": True},
        tune={"metric": "evaluation/episode_reward_mean"},
    )
    assert summary.exit_code == 0
    for trial in sweep.trials():  # four CPUs: one trial at a time, of four processes
        assert (trial["state"], trial["iteration"]) == ("finished", 2)
        assert [result["num_healthy_workers"] for result in read_results(sweep.folder / trial["name"])] == [1, 1]
        assert trial["metric"] is not None


def test_asha_ends_the_weak_with_a_checkpoint(sweep):
    """The reward of an episode is its length: the limit decides which trial is weak."""
    summary = sweep.run(
        {"env_config.max_episode_steps": {"grid": [20, 3]}},
        iterations=4,
        tune={"scheduler": {"kind": "asha", "gracePeriod": 2, "reductionFactor": 2}, "maxConcurrentTrials": 1},
    )
    strong, weak = sweep.trials()
    assert (strong["iteration"], weak["iteration"]) == (4, 2)
    assert weak["state"] == "finished"
    assert weak["reason"] == "asha: weaker than others at iteration 2"
    assert weak["checkpoint"].endswith("checkpoint_000002")
    assert summary.best is not None and summary.best.name == "trial_0001"


def test_a_metric_that_is_in_no_result_is_told_once(sweep, caplog):
    metric = "info/learner/default_policy/cur_lr"  # learner_stats is left out
    summary = sweep.run({"lr": {"grid": [0.01]}}, tune={"metric": metric})
    assert summary.best is None
    told = [record.getMessage() for record in caplog.records if "tune.metric" in record.getMessage()]
    assert len(told) == 1
    assert f"{metric!r} is no number" in told[0] and "result.json" in told[0]


def test_a_failing_trial_is_recorded_and_the_others_go_on(sweep):
    summary = sweep.run({"env_config.max_episode_steps": {"grid": [20, "many"]}})
    good, bad = sweep.trials()
    assert (good["state"], bad["state"]) == ("finished", "failed")
    assert "many" in bad["reason"]
    assert (summary.exit_code, summary.best and summary.best.name) == (0, "trial_0001")
    assert f"trial_0002 (env_config.max_episode_steps=many) failed: {bad['reason']}" in sweep.said.getvalue()
    assert sweep.run_state.progress()["trials"]["failed"] == 1


def test_a_sweep_of_which_every_trial_failed_has_failed(sweep):
    with pytest.raises(TrainingError, match="every trial of the sweep failed: .*many") as failure:
        sweep.run({"env_config.max_episode_steps": {"grid": ["many"]}})
    assert failure.value.exit_code == 2


def dies_in_the_fifth_iteration(folder: Path) -> dict[str, Any]:
    """A trial whose process is killed once, with a checkpoint of its third iteration."""
    return {
        "parameters": {"lr": {"grid": [0.01]}},
        "settings": {"env": "tests.dying:Dying", "env_config": {"marker": str(folder / "killed"), "at": 4 * 64 + 10}},
        "checkpoint": CheckpointSettings(frequency=3),
        "iterations": 6,
    }


def test_a_sweep_of_which_every_trial_was_lost_goes_on_when_it_is_resumed(sweep, tmp_path):
    with pytest.raises(WorkerError, match="goes on when the sweep is resumed: its process died") as failure:
        sweep.run(**dies_in_the_fifth_iteration(tmp_path), max_failures=0)
    assert failure.value.exit_code == 1
    assert sweep.trials()[0]["state"] == "waiting"
    sweep.run(**dies_in_the_fifth_iteration(tmp_path), max_failures=0, resume=True)
    assert (sweep.trials()[0]["state"], sweep.trials()[0]["iteration"]) == ("finished", 6)
    assert sweep.iterations("trial_0001") == list(range(1, 7))


def test_a_missing_checkpoint_to_begin_with_is_named_before_anything_is_written(sweep):
    with pytest.raises(CheckpointError, match="/no/such/checkpoint"):
        sweep.run({"lr": {"grid": [0.01, 0.02]}}, restore_from="/no/such/checkpoint")
    assert list(sweep.storage.iterdir()) == []


def test_a_trial_whose_process_is_killed_goes_on_from_its_checkpoint(sweep, tmp_path):
    """Once it is started again, then it has failed."""
    sweep.run(**dies_in_the_fifth_iteration(tmp_path), max_failures=1)
    (trial,) = sweep.trials()
    assert (trial["state"], trial["iteration"]) == ("finished", 6)
    assert sweep.iterations("trial_0001") == list(range(1, 7))
    assert "its process died: killed, out of memory, or its node was lost; it is started again" in sweep.said.getvalue()


def test_a_trial_whose_environment_hangs_goes_on_from_what_it_had_learned(sweep, tmp_path):
    env = {"env": "ray_broken_env:HangingCartPole", "env_config": {"marker": str(tmp_path / "hung")}}
    sweep.run({"lr": {"grid": [0.01]}}, iterations=5, settings=env | {"sample_timeout_s": 3.0}, max_failures=1)
    (trial,) = sweep.trials()
    assert (trial["state"], trial["iteration"]) == ("finished", 5)
    assert sweep.iterations("trial_0001") == [1, 2, 3, 4, 5]
    assert "sampling hangs: no step for sample_timeout_s=3 s; what was learned is in" in sweep.said.getvalue()


def test_a_signal_writes_checkpoints_and_the_sweep_goes_on_where_it_was(sweep):
    """Finished trials are not run again, unfinished ones go on, and who had not begun begins."""
    ready = lambda: len(sweep.iterations("trial_0002")) >= 3 if list(sweep.storage.glob("test/*/trial_0002")) else False  # noqa: E731
    thread = when(ready, lambda: os.kill(os.getpid(), signal.SIGTERM))
    parameters = {"train_batch_size": {"grid": [64, 65, 66]}}
    one = {"maxConcurrentTrials": 1}
    first = Sweep(sweep.storage)
    summary = first.run(parameters, iterations=25, tune=one | {"metric": "training_iteration"})
    thread.join()
    assert (summary.exit_code, summary.reason.split(";")[0]) == (143, "SIGTERM")
    states = [(trial["state"], trial["iteration"]) for trial in sweep.trials()]
    done, cut, untouched = states
    assert (done, untouched) == (("finished", 25), ("waiting", 0))
    assert cut[0] == "waiting" and 3 <= cut[1] < 25
    checkpoint = find_checkpoint(sweep.folder / "trial_0002")
    assert read_metadata(checkpoint)["iteration"] == cut[1]
    before = (sweep.folder / "trial_0001" / "result.json").stat().st_mtime_ns
    again = Sweep(sweep.storage)
    summary = again.run(parameters, iterations=25, tune=one, resume=True)
    assert summary.exit_code == 0
    assert [(trial["state"], trial["iteration"]) for trial in sweep.trials()] == [("finished", 25)] * 3
    assert (sweep.folder / "trial_0001" / "result.json").stat().st_mtime_ns == before
    assert sweep.iterations("trial_0002") == list(range(1, 26))
    assert f"trial_0002 (train_batch_size=65) begins after iteration {cut[1]}" in again.said.getvalue()
    third = Sweep(sweep.storage)
    assert third.run(parameters, iterations=25, resume=True).exit_code == 0, "nothing is left to do"
