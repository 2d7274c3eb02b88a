"""`reef train`: flags become a job; `reef run` and `reef train file` read one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from reef.cli import run as run_module
from reef.cli import train
from reef.cli.main import main

DOCUMENT = {
    "apiVersion": "reef.dev/v1",
    "kind": "RLTrainingJob",
    "metadata": {"name": "job"},
    "spec": {"algorithm": "PPO", "environment": {"name": "CartPole-v1"}, "stop": {"training_iteration": 1}},
}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any, Any]]:
    """Stand in for the training: (job, options, stop) of every one that would start."""
    found: list[tuple[Any, Any, Any]] = []

    def run_job(job: Any, options: Any, *, stop: Any = None) -> int:
        found.append((job, options, stop))
        return 0

    monkeypatch.setattr(train, "run_job", run_job)
    monkeypatch.setattr(run_module, "run_job", run_job)
    return found


def test_flags_become_a_job(started: list[tuple[Any, Any, Any]], tmp_path: Path) -> None:
    flags = ["--algo", "DQN", "--env", "CartPole-v1", "--config", '{"lr": 0.1, "env_config": {"a": 1}}']
    flags += ["--stop", '{"training_iteration": 30}', "--checkpoint-freq", "5", "--no-checkpoint-at-end"]
    flags += ["--keep-checkpoints-num", "2", "--checkpoint-score-attr", "min-episode_len_mean", "-n", "mine"]
    flags += ["--storage-path", str(tmp_path), "--restore", "/ck", "--torch", "--resume", "-v", "--metrics-port", "1"]
    assert main(["train", *flags]) == 0
    ((job, options, stop),) = started
    assert job.metadata.name == "mine"
    assert job.spec.algorithm == "DQN"
    assert job.spec.environment.config == {"a": 1}
    assert job.spec.config == {"lr": 0.1, "framework": "torch"}
    assert job.spec.restore_from == "/ck"
    assert job.spec.checkpoint.model_dump(exclude_none=True) == {
        "frequency": 5,
        "at_end": False,
        "keep": 2,
        "score_attribute": "min-episode_len_mean",
    }
    assert stop == {"training_iteration": 30}
    assert options.storage_path == str(tmp_path)
    assert (options.resume, options.verbosity, options.metrics_port) == (True, 1, 1)


@pytest.mark.parametrize("flags", [["-a", "PPO", "-e", "X-v0"], ["--run", "PPO", "--env", "X-v0"], ["-rPPO", "-eX-v0"]])
def test_short_flags_and_old_names(flags: list[str], started: list[tuple[Any, Any, Any]]) -> None:
    assert main(["train", *flags]) == 0
    ((job, options, stop),) = started
    assert (job.metadata.name, job.spec.checkpoint.frequency, job.spec.checkpoint.at_end) == ("ppo-x-v0", 0, True)
    assert stop == {}  # until Ctrl-C
    assert options.storage_path is None  # what the document says, else ~/reef_results


def test_a_long_name_of_an_environment_makes_a_name_of_a_job(started: list[tuple[Any, Any, Any]]) -> None:
    env = "acme_robotics_simulation.environments.warehouse:Env"
    assert main(["train", "--algo", "PPO", "--env", env]) == 0
    assert started[0][0].metadata.name == "ppo-acme-robotics-simulation-environments-warehouse"


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--env", "X"], "the following arguments are required: --algo"),
        (["--algo", "PPO"], "the following arguments are required: --env"),
        (["--algo", "PPO", "--env", "X", "--config", "{lr: 1}"], "is no JSON"),
        (["--algo", "PPO", "--env", "X", "--config", "[1]"], "is no JSON object"),
        (["--algo", "PPO", "--env", "X", "--config", '{"env": "Y"}'], "--config env='Y': the environment has a flag"),
        (["--algo", "PPO", "--config", '{"env": "Y"}'], "Give --env Y instead"),
        (["--algo", "PPO", "--env", "X", "--stop", '{"episode_reward_men": 1}'], "--stop: key 'episode_reward_men'"),
        (["--algo", "PPO", "--env", "X", "--stop", '{"training_iteration": "3"}'], "--stop.training_iteration: should"),
        (["--algo", "PPO", "--env", "X", "--checkpoint-freq", "-1"], "--checkpoint-freq: should be greater"),
        (["--export-formats", "onnx"], "--export-formats is a command of its own: reef export CHECKPOINT --onnx FILE"),
        (["--sync-on-checkpoint"], "--sync-on-checkpoint is always so: with --storage-path in an object store"),
        (["--resources-per-trial", "{}"], "the resources of a trial have been automatically set by its settings"),
        (["--algo", "PPO", "--env", "X", "--max-failures", "2"], "only trials of a sweep are started again"),
        (["--algo", "PPO", "--env", "X", "--scheduler", "ASHA"], "there is one trial, and none to compare it with"),
        (["--algo", "PPO", "--env", "X", "--num-samples", "0"], "--num-samples: should be greater than or equal to 1"),
        (
            [
                "--algo",
                "PPO",
                "--env",
                "X",
                "--num-samples",
                "2",
                "--scheduler",
                "ASHA",
                "--scheduler-config",
                '{"a": 1}',
            ],
            "--scheduler-config.a: is no field.",
        ),
        (["--ray-num-nodes", "0"], "--ray-num-nodes: '0': expected a number of nodes, from 1 to 16"),
        (["--num-samples", "2", "file", "x.yaml"], "--num-samples: the file says this"),
        (["--upload-dir", "a", "--local-dir", "b"], "--local-dir: not allowed with argument --upload-dir"),
        (["-f", "x.yaml", "file", "y.yaml"], "is no argument"),
        (["--eager"], "--eager is for TensorFlow, and Reef trains with PyTorch; torch runs eagerly unless torch_comp"),
        (["--trace"], "--trace is for TensorFlow, and Reef trains with PyTorch; use torch_compile_learner and torch_"),
        (["--algo", "PPO", "--env", "X", "--torch", "--config", '{"framework": "tf"}'], "--config says 'tf'"),
        (["--algo", "PPO", "--env", "X", "--lr", "3"], "unrecognized arguments: --lr"),
        (["--algo", "PPO", "--env", "X", "--set", "config.lr=1"], "--set changes a file"),
        (["--algo", "PPO", "--env", "X", "--ray-num-cpus", "nan"], "--ray-num-cpus: 'nan': expected a number"),
        (["--algo", "PPO", "--env", "X", "--ray-object-store-memory", "1000"], "expected a number of bytes, from 7"),
        (["--algo", "PPO", "file", "x.yaml"], "--algo: the file says this"),
        (["--no-checkpoint-at-end", "file", "x.yaml"], "--[no-]checkpoint-at-end: the file says this"),
        (["--checkpoint-score-attr", "episode_reward_mean", "file", "x.yaml"], "--checkpoint-score-attr: the file"),
        (["--checkpoint-freq", "0", "--stop", "{}", "file", "x.yaml"], "--stop, --checkpoint-freq: the file says this"),
        (["x.yaml"], "'x.yaml' is no argument"),
        (["file"], "'file' is no argument"),
    ],
)
def test_wrong_flags_are_one_message_and_exit_code_2(
    flags: list[str], expected: str, started: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *flags]) == 2
    assert expected in capsys.readouterr().err
    assert started == []


def test_flags_of_several_trials_become_a_sweep(started: list[tuple[Any, Any, Any]]) -> None:
    flags = ["--algo", "PPO", "--env", "CartPole-v1", "--config", '{"lr": {"grid_search": [0.1, 0.2]}}']
    flags += ["--num-samples", "2", "--scheduler", "HyperBand", "--scheduler-config", '{"grace_period": 4}']
    flags += ["--max-failures", "1", "--ray-num-nodes", "2", "--ray-ui", "--local-mode"]
    assert main(["train", *flags]) == 0
    ((job, options, _),) = started
    assert job.spec.tune.parameters["lr"].grid == [0.1, 0.2]
    assert (job.spec.tune.num_samples, job.spec.tune.scheduler.kind) == (2, "hyperBand")
    assert (job.spec.tune.scheduler.grace_period, job.spec.fault_tolerance.backoff_limit) == (4, 1)
    assert (options.ray_num_nodes, options.ray_ui, options.local_mode) == (2, True, True)


def test_an_older_name_of_the_storage_path_gives_a_notice(
    started: list[tuple[Any, Any, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "--algo", "PPO", "--env", "X", "--upload-dir", "s3://bucket/folder"]) == 0
    assert started[0][1].storage_path == "s3://bucket/folder"
    assert "--upload-dir is now called --storage-path." in capsys.readouterr().err


@pytest.mark.parametrize("flags", [["file"], ["-f"], ["--config-file"]])
def test_experiments_of_rllib_are_trained_one_after_the_other(
    flags: list[str], started: list[tuple[Any, Any, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tuned.yaml"
    first = {"run": "PPO", "env": "CartPole-v1", "stop": {"training_iteration": 3}, "config": {"lr": 0.1}}
    path.write_text(yaml.safe_dump({"one": first, "two": {"run": "DQN", "env": "CartPole-v1"}}))
    assert main(["train", *flags, str(path), "--set", "config.gamma=0.9"]) == 0
    assert [(job.metadata.name, job.spec.algorithm, stop) for job, _, stop in started] == [
        ("one", "PPO", None),
        ("two", "DQN", {}),
    ]
    assert started[0][0].spec.config == {"lr": 0.1, "gamma": 0.9}
    assert capsys.readouterr().err.count("is an experiment of RLlib, and is read as a job document") == 2


def test_a_signal_in_one_experiment_ends_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path, begun = tmp_path / "tuned.yaml", []
    one = {"run": "PPO", "env": "CartPole-v1", "stop": {"training_iteration": 3}}
    path.write_text(yaml.safe_dump({"a": one, "b": one, "c": one}))

    def run_job(job: Any, options: Any, *, stop: Any = None) -> int:
        begun.append(job.metadata.name)
        return 143 if job.metadata.name == "b" else 1

    monkeypatch.setattr(train, "run_job", run_job)
    assert main(["train", "file", str(path)]) == 143
    assert begun == ["a", "b"]


@pytest.mark.parametrize("command", [["run"], ["train", "file"]])
def test_a_file_is_trained_with_its_changes(
    command: list[str], started: list[tuple[Any, Any, Any]], tmp_path: Path
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(DOCUMENT))
    flags = ["--set", "config.lr=1e-4", "--set", "stop.training_iteration=9", "--ray-num-cpus", "3"]
    assert main([*command, str(path), *flags]) == 0
    ((job, options, stop),) = started
    assert job.spec.config == {"lr": 1e-4}
    assert job.spec.stop == {"training_iteration": 9}
    assert stop is None
    assert options.ray_num_cpus == 3


@pytest.mark.parametrize(
    ("text", "flags", "expected"),
    [
        (None, [], "cannot be read"),
        ("kind: Pod\napiVersion: v1\n", [], "expected apiVersion 'reef.dev/v1'"),
        ("a: [", [], "is no valid YAML"),
        (yaml.safe_dump(DOCUMENT), ["--set", "confg.lr=1"], "spec.confg: is no field. Did you mean 'config'?"),
        (yaml.safe_dump(DOCUMENT), ["--set", "stop.episode_reward_men=1"], "Did you mean 'episode_reward_mean'?"),
    ],
)
def test_a_wrong_file_is_one_message_and_exit_code_2(
    text: str | None,
    flags: list[str],
    expected: str,
    started: list[Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "job.yaml"
    if text is not None:
        path.write_text(text)
    assert main(["run", str(path), *flags]) == 2
    assert main(["validate", str(path), *flags]) == 2
    assert expected in capsys.readouterr().err
    assert started == []
