"""The judge of `make learn`, and that no document there could be met by a policy that acts at random."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks.learn.__main__ import FOLDER, Promise, judge

from reef.api import load_job
from reef.envs import make_vector_env
from reef.job.settings import config_of

DOCUMENTS = sorted(FOLDER.glob("*.yaml"))
PROMISE = Promise.of(FOLDER / "ppo-cartpole.yaml")


def result_file(folder: Path, **fields: object) -> Path:
    good = {"episode_reward_mean": 460.0, "timesteps_total": 60_000, "episodes_total": 500, "time_total_s": 4.0}
    path = folder / "result.json"
    path.write_text('{"episode_reward_mean": null}\n' + json.dumps({**good, **fields}) + "\n")
    return path


def test_reward_in_time_is_met(tmp_path: Path):
    assert judge(PROMISE, 1, result_file(tmp_path)).met


@pytest.mark.parametrize(
    "fields",
    [
        {"episode_reward_mean": 449.9},
        {"episode_reward_mean": None},
        {"timesteps_total": 200_001},
        {"episodes_total": 99},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_short_of_it_is_not(tmp_path: Path, fields: dict[str, object]):
    assert not judge(PROMISE, 1, result_file(tmp_path, **fields)).met


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_random_policy_falls_short(document: Path):
    promise, config = Promise.of(document), config_of(load_job(document)).copy().debugging(seed=0)
    env = make_vector_env(config, 0, 4)
    env.reset()
    env.action_space.seed(0)
    returns, running = [], np.zeros(4)
    while len(returns) < 12:
        actions = np.stack([env.action_layout.flatten(env.action_space.sample()) for _ in range(4)])
        result = env.step(actions)
        running += result.raw_rewards
        for column in np.flatnonzero(result.terminated | result.truncated):
            returns.append(running[column])
            running[column] = 0.0
    env.close()
    assert np.mean(returns) < promise.reward - 50


@pytest.mark.parametrize(("steps", "code"), [(200_000, 0), (1024, 1)])
def test_the_quick_part_trains_and_says_whether_it_learnt(tmp_path: Path, steps: int, code: int):
    text = (FOLDER / "ppo-cartpole.yaml").read_text().replace("timesteps_total: 200000", f"timesteps_total: {steps}")
    (tmp_path / "quick.yaml").write_text(text)
    command = [sys.executable, "-m", "benchmarks.learn", "--quick", "--folder", str(tmp_path)]
    done = subprocess.run(command, cwd=FOLDER.parents[1], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    assert f"met={code == 0}" in done.stdout
    assert "error=''" in done.stdout
