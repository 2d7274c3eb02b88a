"""Learning from recorded episodes that workers on Ray read."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from reef.algorithms.bc import BCConfig

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster"), pytest.mark.timeout(120)]
STEP = {"obs": [0.0] * 4, "next_obs": [0.0] * 4, "action": 1, "terminated": False, "truncated": False}


def config(folder: Path) -> BCConfig:
    for file in range(2):
        lines = (json.dumps({"steps": [STEP | {"reward": file + 1.0}] * 10}) for _ in range(50))
        (folder / f"{file}.json").write_text("\n".join(lines))
    given = {"env": "CartPole-v1", "input_": str(folder), "num_rollout_workers": 2, "num_cpus_per_worker": 0.5}
    given |= {"shuffle_buffer_size": 400, "train_batch_size": 50, "min_train_timesteps_per_iteration": 500}
    given |= {"rollout_fragment_length": 50, "delay_between_worker_restarts_s": 0.0, "lr": 0.01}
    return BCConfig.from_dict(given)


def held(algorithm: Any) -> list[float]:
    """The rewards of all steps that are held, which are the numbers of their files."""
    (window,) = algorithm.recorded.windows
    return [float(reward) for reward in window.buffer.state()["columns"]["rewards"]]


def test_steps_of_every_worker_are_learned_from(tmp_path: Path) -> None:
    with config(tmp_path).build() as algorithm:
        result = algorithm.train()
        assert result["num_env_steps_trained"] == 500
        assert {1.0, 2.0} == set(held(algorithm))
        (before,) = {window.buffer.added for window in algorithm.recorded.windows}  # type: ignore[attr-defined]
        assert before == 900, "as many as are held and were drawn"
        state = algorithm.state()
        algorithm.train()
        algorithm.set_state(state)
        algorithm.train()
        (after,) = {window.buffer.added for window in algorithm.recorded.windows}  # type: ignore[attr-defined]
        assert after == 1400


def test_a_worker_that_is_killed_is_replaced(tmp_path: Path) -> None:
    settings = {"recreate_failed_workers": True}
    with config(tmp_path).update_from_dict(settings).build() as algorithm:
        algorithm.train()
        here, first, _ = algorithm.workers.foreach_worker(lambda worker: os.getpid())
        assert here == os.getpid()
        os.kill(first, signal.SIGKILL)
        algorithm.train()
        while not algorithm.workers.take_recreated():  # at the latest by the time limit
            algorithm.train()
        for _ in range(5):
            algorithm.train()
        assert {1.0, 2.0} == set(held(algorithm)), "its share is read again"
