"""Where a sweep begins: with which record and which checkpoint, and what is left alone when it cannot."""

from pathlib import Path

import pytest

from reef.algorithms.ppo import PPOConfig
from reef.api.tune import Tune
from reef.errors import CheckpointError
from reef.run.process.identity import Claim
from reef.sweep.begin import begin
from reef.sweep.plan import Plan


def test_a_sweep_that_cannot_be_resumed_leaves_the_folder_to_whoever_writes_there(tmp_path: Path) -> None:
    base = PPOConfig.from_dict({"env": "CartPole-v1", "train_batch_size": 256, "sgd_minibatch_size": 32})
    grid = Plan(Tune.model_validate({"parameters": {"lr": {"grid": [0.1, 0.01]}}}), base, {"training_iteration": 9})
    other = Claim()
    begun, start = begin(grid, tmp_path, other, resume=False, remote=None, restore_from=None)
    begun.write()
    other.take(begun.folder)
    assert start is None
    with pytest.raises(CheckpointError, match="nowhere"):
        begin(grid, tmp_path, Claim(), resume=True, remote=None, restore_from=str(tmp_path / "nowhere"))
    with other.held(begun.folder):
        pass
    resumed, _ = begin(grid, tmp_path, Claim(), resume=True, remote=None, restore_from=None)
    assert resumed.folder == begun.folder and resumed.trials.keys() == begun.trials.keys()
