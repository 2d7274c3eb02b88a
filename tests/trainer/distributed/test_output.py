"""What environments print in other processes reaches the stderr of the command, with the worker's name."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]
HERE = Path(__file__).parent
CONFIG = {
    "num_rollout_workers": 2,
    "num_envs_per_worker": 1,
    "train_batch_size": 64,
    "sgd_minibatch_size": 32,
    "num_sgd_iter": 1,
    "num_cpus_per_worker": 0.5,
}


def reef_run(folder: Path, config: dict[str, Any], **spec: Any) -> subprocess.CompletedProcess[str]:
    document = {
        "apiVersion": "reef.dev/v1",
        "kind": "RLTrainingJob",
        "metadata": {"name": "prints"},
        "spec": {
            "algorithm": "PPO",
            "environment": {"name": "printing_env:PrintingCartPole"},
            "config": CONFIG | config,
            "stop": {"training_iteration": 2},
            **spec,
        },
    }
    (folder / "job.json").write_text(json.dumps(document))
    command = [sys.executable, "-m", "reef", "run", str(folder / "job.json"), "--storage-path", str(folder)]
    environment = os.environ | {"PYTHONPATH": str(HERE)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=True)


def test_lines_of_workers_reach_stderr_and_leave_the_results_alone(tmp_path: Path) -> None:
    done = reef_run(tmp_path, {})
    for worker in (1, 2):
        for text in (r"to stdout of process \d+", "to stderr", "WARNING printing_env: through logging"):
            assert re.search(rf"^\(worker {worker}\) {text}$", done.stderr, re.MULTILINE), done.stderr
    assert "to std" not in done.stdout
    assert "iteration 2" in done.stdout


def test_lines_of_a_sweep_say_of_which_trial_they_are(tmp_path: Path) -> None:
    """One trial acts in its own process, the other has a worker."""
    parameters = {"num_rollout_workers": {"grid": [0, 1]}}
    done = reef_run(tmp_path, {}, tune={"metric": "episode_reward_mean", "parameters": parameters})
    names = set(re.findall(r"^\((.*)\) to stdout of process \d+$", done.stderr, re.MULTILINE))
    assert names == {"trial_0001", "trial_0002 worker 1"}, done.stderr
