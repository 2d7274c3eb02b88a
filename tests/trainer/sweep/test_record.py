"""How the trials stand: the file that a sweep goes on from, the best trial, and all results in one."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from reef.errors import StorageError
from reef.sweep.record import FILE, Record, Trial


def result(iteration: int, reward: float | None, **more: Any) -> dict[str, Any]:
    counts = {"training_iteration": iteration, "timesteps_total": 10 * iteration, "episodes_total": iteration}
    return counts | {"episode_reward_mean": reward, "timestamp": iteration, "num_healthy_workers": 1} | more


def record(folder: Path, *states: str, mode: str = "max") -> Record:
    trials = [Trial(f"trial_{index:04d}", {"lr": index}, 0, state) for index, state in enumerate(states, 1)]
    return Record(folder, "episode_reward_mean", mode, trials)


def test_the_best_trial_is_that_with_the_best_newest_value_of_those_that_did_not_fail(tmp_path):
    made = record(tmp_path, "finished", "running", "failed", "waiting")
    assert made.best is None
    for name, reward in (("trial_0001", 20.0), ("trial_0002", 50.0), ("trial_0002", 10.0), ("trial_0003", 99.0)):
        made.take(name, result(1, reward))
    assert made.best is made.trials["trial_0001"]
    made.mode = "min"
    assert made.best is made.trials["trial_0002"]
    made.take("trial_0002", result(2, float("nan")))
    assert made.best is made.trials["trial_0001"], "what is no number compares with nothing"


def test_the_status_names_the_best_trial_and_counts(tmp_path):
    made = record(tmp_path, "finished", "running", "failed", "waiting")
    made.take("trial_0002", result(3, 7.5))
    (tmp_path / "trial_0002" / "checkpoint_000003").mkdir(parents=True)
    made.change("trial_0002", "finished")
    best, counts = made.status()
    assert best and best.model_dump() == {
        "name": "trial_0002",
        "config": {"lr": 2},
        "metric": 7.5,
        "iteration": 3,
        "checkpoint": str(tmp_path / "trial_0002" / "checkpoint_000003"),
    }
    assert counts.model_dump() == {"total": 4, "running": 0, "finished": 2, "failed": 1}


def test_of_what_was_told_of_a_trial_only_its_results_count(tmp_path):
    """An object store may have the record, but no checkpoint and no results of a trial that ran."""
    made = record(tmp_path, "finished", "running")
    made.take("trial_0001", result(3, 20.0))
    made.take("trial_0002", result(7, 200.0))
    made.write()
    again = Record.read(tmp_path, "episode_reward_mean", "max")
    assert again is not None
    lost = again.trials["trial_0002"]
    assert (lost.state, lost.iteration, lost.metric, lost.checkpoint) == ("waiting", 0, None, None)
    assert again.best is again.trials["trial_0001"]
    again.take("trial_0002", result(1, 5.0))
    together = again.together()
    assert together is not None
    assert together["training_iteration"] == 1


def test_one_result_for_all_adds_up_steps_and_shows_the_best_reward(tmp_path):
    made = record(tmp_path, "finished", "running")
    assert made.together() is None
    made.take("trial_0001", result(3, 20.0))
    made.take("trial_0002", result(2, 30.0))
    together = made.together()
    assert together is not None
    assert (together["training_iteration"], together["timesteps_total"], together["episode_reward_mean"]) == (5, 50, 30)
    assert (together["num_healthy_workers"], together["timestamp"]) == (1, 3)


def test_what_was_written_is_read_and_who_ran_waits_again(tmp_path):
    assert Record.read(tmp_path, "episode_reward_mean", "max") is None
    made = record(tmp_path, "finished", "running", "failed")
    for name, iteration in (("trial_0001", 4), ("trial_0002", 2)):
        made.take(name, result(iteration, 5.0))
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / "result.json").write_text(json.dumps(result(iteration, 5.0)) + "\n")
    made.trials["trial_0003"].reason = "the loss became NaN"
    made.write()
    again = Record.read(tmp_path, "episode_reward_mean", "max")
    assert again is not None
    assert [trial.state for trial in again.trials.values()] == ["finished", "waiting", "failed"]
    assert again.trials["trial_0003"].reason == "the loss became NaN"
    assert again.trials["trial_0002"].parameters == {"lr": 2}
    together = again.together()
    assert together is not None
    assert together["training_iteration"] == 6


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "reef-sweep", "version": 2, "trials": []}', "\x80"])
def test_a_damaged_file_is_an_error_and_not_a_new_sweep(tmp_path, text):
    (tmp_path / FILE).write_text(text, encoding="latin-1")
    with pytest.raises(StorageError, match=FILE):
        Record.read(tmp_path, "episode_reward_mean", "max")


def test_workers_that_an_earlier_life_replaced_are_not_counted_again(tmp_path):
    (tmp_path / "trial_0001").mkdir()
    line = {**result(3, 20.0), "num_worker_restarts": 4}
    (tmp_path / "trial_0001" / "result.json").write_text(json.dumps(line) + "\n")
    record(tmp_path, "finished").write()
    again = Record.read(tmp_path, "episode_reward_mean", "max")
    assert again is not None
    together = again.together()
    assert together is not None
    assert (together["training_iteration"], together["num_worker_restarts"]) == (3, 0)


def test_damage_is_an_error_and_leads_to_no_other_folder(tmp_path):
    folder = tmp_path / "sweep"
    row = asdict(Trial("trial_0001", {"lr": 1}, 0))
    wrong = [
        None, [], {**row, "name": "../elsewhere"}, {**row, "name": 3}, {**row, "state": "done"},
        {**row, "parameters": ["lr"]}, {**row, "iteration": -1}, {**row, "repetition": "0"}, {"name": "trial_0001"},
        {**row, "metric": {}}, {**row, "checkpoint": 1},
    ]  # fmt: skip
    folder.mkdir()
    for rows in ([one] for one in wrong):
        (folder / FILE).write_text(json.dumps({"format": "reef-sweep", "version": 1, "trials": rows}))
        with pytest.raises(StorageError, match=FILE):
            Record.read(folder, "episode_reward_mean", "max")
    for text in ("[" * 100_000, json.dumps({"format": "reef-sweep", "version": 1, "trials": [row, row]})):
        (folder / FILE).write_text(text)
        with pytest.raises(StorageError, match=FILE):
            Record.read(folder, "episode_reward_mean", "max")


@pytest.mark.parametrize("line", ["null", "[3]", '{"training_iteration": "4"}', '{"timesteps_total": 3}', "\udcff"])
def test_damaged_results_of_a_trial_are_passed_over(tmp_path, line):
    record(tmp_path, "finished").write()
    (tmp_path / "trial_0001").mkdir()
    lines = [json.dumps({"training_iteration": 2}), line, json.dumps(result(9, 9.0))]
    (tmp_path / "trial_0001" / "result.json").write_bytes(("\n".join(lines) + "\n").encode(errors="surrogateescape"))
    again = Record.read(tmp_path, "episode_reward_mean", "max")
    assert again is not None
    assert again.trials["trial_0001"].iteration == 2
    together = again.together()
    assert together is not None
    assert (together["timestamp"], together["timesteps_total"]) == (0, 0)
