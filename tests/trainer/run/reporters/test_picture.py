from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reef.run.reporters.picture import draw_learning_curve


def results(folder: Path, *means: float | None) -> None:
    lines = [
        {
            "training_iteration": i,
            "timesteps_total": 100 * i,
            "episode_reward_mean": mean,
            "episode_reward_min": mean,
            "episode_reward_max": mean,
        }
        for i, mean in enumerate(means, start=1)
    ]
    (folder / "result.json").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_the_curve_is_a_png(tmp_path: Path) -> None:
    results(tmp_path, None, 1.0, 3.0)
    picture = draw_learning_curve(tmp_path, "PPO on CartPole-v1")
    assert picture == tmp_path / "learning_curve.png"
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("means", [(), (None, None)])
def test_there_is_no_picture_without_an_episode(tmp_path: Path, means: tuple[Any, ...]) -> None:
    results(tmp_path, *means)
    assert draw_learning_curve(tmp_path, "PPO") is None
    assert draw_learning_curve(tmp_path / "nothing", "PPO") is None
