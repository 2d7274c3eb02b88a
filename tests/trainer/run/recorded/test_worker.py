"""Workers read recorded episodes in processes of their own, each its share of the files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reef.algorithms.bc import BCConfig
from reef.errors import ConfigError
from reef.run.recorded.worker import ReadingWorker


def write(folder: Path, files: int, episodes: int = 3, steps: int = 4) -> Path:
    """Episodes whose rewards are the numbers of their files, with the episode behind the point."""
    step = {"obs": [0.0] * 4, "next_obs": [0.0] * 4, "action": 1, "terminated": False, "truncated": False}
    for file in range(files):
        with (folder / f"{file}.json").open("w") as out:
            for episode in range(episodes):
                out.write(json.dumps({"steps": [step | {"reward": file + episode / 10}] * steps}) + "\n")
    return folder


def worker(place: Any, index: int, workers: int = 2, **settings: Any) -> ReadingWorker:
    given = {"env": "CartPole-v1", "input_": str(place), "num_rollout_workers": workers, "shuffle_buffer_size": 10}
    return ReadingWorker(BCConfig.from_dict({**given, "rollout_fragment_length": 6, **settings}).checked(), index)


def rewards(one: ReadingWorker) -> list[float]:
    """Of the episodes in the next fragment."""
    ((_, rollout),) = one.sample().rollouts.items()
    return [round(float(reward), 1) for reward in rollout.rewards[rollout.truncated]]


def test_each_file_is_read_by_one_worker(tmp_path: Path) -> None:
    first, second = (worker(write(tmp_path, 3), index) for index in (1, 2))
    assert [rewards(first) for _ in range(3)] == [[0.0, 0.1], [0.2, 2.0], [2.1, 2.2]]
    assert rewards(first) == [0.0, 0.1], "the end is followed by the beginning"
    assert [rewards(second) for _ in range(2)] == [[1.0, 1.1], [1.2, 1.0]]


def test_a_fragment_has_whole_episodes_one_after_the_other(tmp_path: Path) -> None:
    sample = worker(write(tmp_path, 2), 1).sample()
    ((_, rollout),) = sample.rollouts.items()
    assert rollout.shape == (8, 1)
    assert np.flatnonzero(rollout.truncated).tolist() == [3, 7]
    assert (sample.env_steps, sample.progress, sample.worker_index) == (8, 8, 1)


def test_a_worker_goes_on_where_it_was(tmp_path: Path) -> None:
    first, second = (worker(write(tmp_path, 2), 1) for _ in range(2))
    rewards(first)
    second.set_state(first.state())
    assert rewards(first) == rewards(second) == [0.2, 0.0]
    other = worker(tmp_path, 1, workers=1)
    other.set_state(first.state())
    assert rewards(other) == [0.0, 0.1], "its share is another one"


def test_a_function_knows_whose_share_it_reads() -> None:
    seen = []

    def read(context: Any) -> Any:
        seen.append((context.worker_index, context.config.num_rollout_workers))
        step = {"obs": [0.0] * 4, "action": 1, "next_obs": [0.0] * 4, "reward": 1.0}
        return [[step | {"terminated": True, "truncated": False}]]

    given = {"num_rollout_workers": 2, "shuffle_buffer_size": 10}
    config = BCConfig.from_dict({"env": "CartPole-v1", **given}).offline_data(input_=read).checked()
    ReadingWorker(config, 2).sample()
    assert set(seen) == {(2, 2)}


def test_fewer_files_than_workers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"num_rollout_workers=3: input_ has 2 files, .* Set it to at most 2, or"):
        worker(write(tmp_path, 2), 0, workers=3)
