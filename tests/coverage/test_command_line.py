"""The command line, where no other test shows what it does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reef.cli.main import main

SMALL = json.dumps({"train_batch_size": 64, "sgd_minibatch_size": 64, "num_sgd_iter": 1})
TRAIN = ["train", "--env", "CartPole-v1", "--config", SMALL, "--stop", '{"training_iteration": 2}']


def test_results_are_below_reef_results_in_a_folder_of_the_experiment(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main([*TRAIN, "--run", "PPO", "--experiment-name", "first", "--checkpoint-freq", "1"]) == 0
    (folder,) = (tmp_path / "reef_results" / "first").glob("PPO_CartPole-v1_*")
    assert {"params.json", "result.json", "progress.csv"} <= {path.name for path in folder.iterdir()}
    assert {path.name for path in folder.glob("checkpoint_*")} == {"checkpoint_000001", "checkpoint_000002"}
    assert json.loads((folder / "params.json").read_text())["train_batch_size"] == 64


def test_without_a_frequency_there_is_one_checkpoint_at_the_end(tmp_path: Path) -> None:
    assert main([*TRAIN, "--algo", "PPO", "--storage-path", str(tmp_path / "with")]) == 0
    assert [path.name for path in (tmp_path / "with").rglob("checkpoint_*")] == ["checkpoint_000002"]
    assert main([*TRAIN, "--algo", "PPO", "--storage-path", str(tmp_path / "none"), "--no-checkpoint-at-end"]) == 0
    assert list((tmp_path / "none").rglob("checkpoint_*")) == []


@pytest.mark.parametrize("framework", ["tf", "tf2", "tfe"])
def test_another_framework_is_refused(framework: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TRAIN, "--algo", "PPO", "--framework", framework]) == 2
    assert f"framework='{framework}': expected 'torch'" in capsys.readouterr().err


def test_settings_in_an_older_spelling_are_translated_with_one_warning(tmp_path: Path, capsys) -> None:
    older = json.dumps({**json.loads(SMALL), "num_workers": 0, "lambda": 0.9})
    flags = ["--algo", "PPO", "--env", "CartPole-v1", "--config", older, "--stop", '{"training_iteration": 1}']
    assert main(["train", *flags, "--storage-path", str(tmp_path)]) == 0
    told = capsys.readouterr().err
    assert told.count("'num_workers' is now called 'num_rollout_workers'") == 1
    (params,) = tmp_path.rglob("params.json")
    assert json.loads(params.read_text())["lambda_"] == 0.9


def test_the_id_of_an_experiment_stays_when_it_is_resumed(tmp_path: Path) -> None:
    flags = ["train", "--algo", "PPO", "--env", "CartPole-v1", "--config", SMALL, "--storage-path", str(tmp_path)]
    for iterations in (1, 2):
        assert main([*flags, "--stop", json.dumps({"training_iteration": iterations}), "--resume"]) == 0
    (file,) = tmp_path.rglob("result.json")
    results = [json.loads(line) for line in file.read_text().splitlines()]
    assert [result["training_iteration"] for result in results] == [1, 2]
    assert results[0]["experiment_id"] == results[1]["experiment_id"]
