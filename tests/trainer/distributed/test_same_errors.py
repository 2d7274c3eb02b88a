"""What goes wrong in another process is reported, and ends the command, as in one process."""

import json
from pathlib import Path
from typing import Any

import pytest

import reef
from reef.algorithms.ppo import PPOConfig
from reef.cli.main import main
from reef.errors import CheckpointError

PACKAGE = str(Path(reef.__file__).parent)  # not "reef/", which the checkout's own folder may be called

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster"), pytest.mark.timeout(120)]


def config(**settings: Any) -> PPOConfig:
    made = PPOConfig().environment("CartPole-v1").debugging(seed=3)
    made.update_from_dict(
        {"train_batch_size": 32, "sgd_minibatch_size": 32, "num_sgd_iter": 1, "model": {"fcnet_hiddens": [8]}}
        | settings
    )
    return made


def run(folder: Path, environment: str, workers: int) -> int:
    settings = {"num_rollout_workers": workers, "num_cpus_per_worker": 0.5, "train_batch_size": 128}
    document = {
        "apiVersion": "reef.dev/v1",
        "kind": "RLTrainingJob",
        "metadata": {"name": "job"},
        "spec": {
            "algorithm": "PPO",
            "environment": {"name": f"ray_broken_env:{environment}"},
            "config": settings,
            "stop": {"training_iteration": 1},
        },
    }
    path = folder / "job.json"  # JSON is YAML
    path.write_text(json.dumps(document))
    return main(["run", str(path), "--storage-path", str(folder / "results")])


@pytest.mark.parametrize("workers", [0, 1])
def test_an_environment_that_calls_exit_is_wrong_use(tmp_path: Path, capsys, workers: int) -> None:
    assert run(tmp_path, "LeavingCartPole", workers) == 2
    error = capsys.readouterr().err
    assert "sys.exit(0) was called, raise an error instead" in error
    assert error.count("ray_broken_env.py") == 1


@pytest.mark.parametrize("workers", [0, 1])
def test_the_traceback_of_an_environment_stands_in_the_message_once(tmp_path: Path, capsys, workers: int) -> None:
    assert run(tmp_path, "BrokenCartPole", workers) == 2
    error = capsys.readouterr().err
    assert error.count('raise RuntimeError("the pole is broken")') == 1
    assert error.count("Traceback (most recent call last)") == 1
    assert "raised in step() at column 0 of worker" in error
    assert PACKAGE not in error, "none of our own lines"


@pytest.mark.parametrize("learners", [0, 2])
def test_a_checkpoint_of_another_network_is_refused_and_changes_nothing(tmp_path: Path, learners: int) -> None:
    processes = {"num_learner_workers": learners, "num_cpus_per_learner_worker": 0.25, "recreate_failed_workers": True}
    with config().build() as one, config(model={"fcnet_hiddens": [9]}, **processes).build() as two:
        one.train()
        with pytest.raises(CheckpointError, match="It was made with model.fcnet_hiddens=") as caught:
            two.restore(one.save(tmp_path / "here"))
        assert caught.value.exit_code == 2
        assert two.iteration == 0
        assert two.train()["training_iteration"] == 1
