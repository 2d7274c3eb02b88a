"""The table of a sweep's trials."""

from __future__ import annotations

from pathlib import Path

from reef.sweep.plan import Trial
from reef.sweep.record import Record
from reef.sweep.table import MOST_ROWS, table


def test_a_line_says_where_a_trial_is_and_what_it_reached(tmp_path: Path) -> None:
    trials = [Trial(f"trial_000{number}", {"lr": 0.1 / number}, 0) for number in (1, 2, 3, 4)]
    record = Record(tmp_path, "episode_reward_mean", "max", trials)
    result = {
        "training_iteration": 3,
        "timesteps_total": 192,
        "episode_reward_mean": 21.5,
        "time_total_s": 1.25,
        "pid": 7,
    }
    for name in ("trial_0001", "trial_0002"):
        record.take(name, result)
    record.change("trial_0001", "finished")
    record.change("trial_0002", "running")
    record.change("trial_0003", "failed")
    lines = [line.split() for line in table(record).splitlines()]
    assert lines[0] == ["trial", "status", "parameters", "pid", "iter", "seconds", "steps", "reward"]
    assert lines[1] == ["trial_0002", "RUNNING", "lr=0.05", "7", "3", "1.2", "192", "21.5"]
    assert lines[2][:2] == ["trial_0003", "ERROR"]
    assert lines[3] == ["trial_0001", "TERMINATED", "lr=0.1", "3", "1.2", "192", "21.5"]
    assert lines[4] == ["trial_0004", "PENDING", "lr=0.025"]


def test_many_trials_are_cut_off_and_counted(tmp_path: Path) -> None:
    trials = [Trial(f"trial_{number:04d}", {"key": "x" * 100}, 0) for number in range(1, MOST_ROWS + 4)]
    lines = table(Record(tmp_path, "episode_reward_mean", "max", trials)).splitlines()
    assert len(lines) == MOST_ROWS + 2
    assert lines[-1] == "  and 3 more"
    assert lines[1].endswith("...")
