"""What workers on Ray sample goes into files of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from reef.algorithms.ppo import PPOConfig
from reef.offline.episode_files import recorded_in
from reef.offline.steps import one_by_one

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster"), pytest.mark.timeout(120)]


def _without_time(file: Path) -> str:
    """Workers may begin in different seconds."""
    return file.name.split("_", 2)[-1]


def test_every_episode_of_every_worker_is_written(tmp_path: Path) -> None:
    config = PPOConfig().environment("CartPole-v1").rollouts(num_rollout_workers=2, rollout_fragment_length=100)
    config = config.training(train_batch_size=400, sgd_minibatch_size=100, num_sgd_iter=1)
    config = config.offline_data(output=str(tmp_path), output_config={"format": "parquet"})
    with config.build() as algorithm:
        episodes = [algorithm.train()["episodes_total"] for _ in range(2)][-1]
    files = sorted(tmp_path.iterdir(), key=_without_time)
    assert [_without_time(file) for file in files] == ["worker-1_0.parquet", "worker-2_0.parquet"]
    assert sum(len(list(one_by_one(recorded_in(file)))) for file in files) >= episodes > 3
