"""The recorded episodes of `make learn`, and BC on them, with which other algorithms are compared."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from benchmarks.learn import recorded, training
from benchmarks.learn.lines import Line, documents
from benchmarks.learn.recorded import RANDOM, RECORDINGS, Part, Recording, make_missing, mean_reward, record
from benchmarks.learn.training import imitation

from reef.algorithms.marwil import MARWILConfig
from reef.algorithms.offline import OfflineConfig
from reef.api import load_job
from reef.job.settings import config_of

QUICK = Recording("cartpole-ppo.yaml", (Part(0, 3, RANDOM), Part(1000, 2)))


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MARWILConfig:
    monkeypatch.setattr(recorded, "FOLDER", tmp_path)
    monkeypatch.setattr(recorded, "RECORDINGS", {"quick.json": QUICK})
    return MARWILConfig.from_dict({"env": "CartPole-v1", "input_": str(tmp_path / "quick.json")})


def test_what_is_missing_is_recorded_part_by_part_and_once(config: MARWILConfig) -> None:
    make_missing(config)
    path = Path(str(config.input_))
    episodes = [json.loads(line) for line in path.read_text().splitlines()]
    assert [episode["number"] for episode in episodes] == [1, 2, 3, 1, 2]
    assert mean_reward(str(path)) == round(np.mean([len(episode["steps"]) for episode in episodes]), 2)
    before = path.stat().st_mtime_ns
    make_missing(config)
    assert path.stat().st_mtime_ns == before
    assert [each.name for each in path.parent.iterdir()] == ["quick.json"]


def test_an_expert_that_is_none_is_not_recorded(tmp_path: Path) -> None:
    poor = Recording("cartpole-ppo.yaml", (Part(0, 2, RANDOM, lowest=500.0),))
    with pytest.raises(RuntimeError, match=r"quick\.json: an episode after 0 steps had a reward of \d"):
        record(poor, tmp_path / "quick.json")
    assert not list(tmp_path.iterdir())


def test_bc_is_trained_on_the_same_episodes(
    config: MARWILConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_missing(config)
    short = tmp_path / "short.yaml"
    short.write_text(training.IMITATION.read_text().replace("500000", "10000"))
    monkeypatch.setattr(training, "IMITATION", short)
    found = imitation(config, seed=1)
    assert found["recorded"] == mean_reward(str(config.input_))
    assert 8.0 <= found["bc"] <= 500.0
    assert imitation(config, seed=1) == found


def test_every_document_of_an_offline_algorithm_reads_what_is_made() -> None:
    configs = [config_of(load_job(path)) for path in documents()]
    read = {str(config.input_) for config in configs if isinstance(config, OfflineConfig)}
    assert read == {str(recorded.FOLDER / name) for name in RECORDINGS}


def test_only_what_is_of_mixed_quality_is_compared_with_bc() -> None:
    lines = [Line.of(path) for path in documents()]
    assert {line.document.name: line.times_bc for line in lines if line.times_bc is not None} == {
        "cartpole-marwil.yaml": 1.5,
        "pendulum-cql.yaml": 1.0,
        "pendulum-iql.yaml": 1.0,
    }
