"""`reef list` and `reef example`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import reef
from reef.algorithms.registry import ALGORITHMS
from reef.api import load_job
from reef.cli import catalog
from reef.cli.main import main

ROOT = Path(__file__).parents[3]
TUNED = sorted((ROOT / "examples" / "tuned").iterdir())


def test_every_algorithm_is_listed_with_what_it_is(capsys: pytest.CaptureFixture[str]):
    assert main(["list"]) == 0
    listed = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines() if line)
    assert listed.keys() >= ALGORITHMS.keys()
    assert listed["PPO"].startswith("Proximal policy optimisation")


@pytest.mark.parametrize("path", TUNED, ids=lambda path: path.stem)
def test_an_example_is_named_after_its_file_and_says_what_it_reaches(path: Path):
    metadata = load_job(path).metadata
    assert metadata.name == path.stem
    assert "reef.dev/reaches" in metadata.annotations


def test_examples_are_listed_with_what_they_reach(capsys: pytest.CaptureFixture[str]):
    assert main(["example", "list"]) == 0
    title, *rows = capsys.readouterr().out.splitlines()
    assert title.split() == ["NAME", "ALGORITHM", "ENVIRONMENT", "REWARD", "BY", "STEPS"]
    assert [row.split()[0] for row in rows] == [path.stem for path in sorted(TUNED, key=lambda path: path.stem)]
    assert "pendulum-td3 TD3 Pendulum-v1 -200 by 12000, -165 by 15000" in [" ".join(row.split()) for row in rows]


@pytest.mark.parametrize("text", ["sac", "SAC", "MountainCar"])
def test_a_filter_looks_at_the_whole_line(text: str, capsys: pytest.CaptureFixture[str]):
    assert main(["example", "list", "--filter", text]) == 0
    found = [row.split()[0] for row in capsys.readouterr().out.splitlines()[1:]]
    assert "mountaincar-sac" in found
    assert "cartpole-ppo" not in found


def test_an_example_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]):
    assert main(["example", "get", "cartpole-ppo"]) == 0
    assert capsys.readouterr().out == (ROOT / "examples/tuned/cartpole-ppo.yaml").read_text()


def test_an_example_is_trained_with_what_the_command_line_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    changes = ["--set", "stop.training_iteration=1", "--set", "config.train_batch_size=256"]
    assert main(["example", "run", "cartpole-ppo", *changes, "--storage-path", str(tmp_path)]) == 0
    assert "stopped: training_iteration 1 >= 1" in capsys.readouterr().out
    (params,) = tmp_path.rglob("params.json")
    assert json.loads(params.read_text())["train_batch_size"] == 256


def test_pong_is_trained_in_short_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    sizes = {"train_batch_size": 32, "sgd_minibatch_size": 32, "num_envs_per_worker": 2, "rollout_fragment_length": 16}
    changes = [f"--set=config.{key}={value}" for key, value in {**sizes, "num_sgd_iter": 1}.items()]
    assert (
        main(["example", "run", "pong-ppo", "--set=stop.training_iteration=1", *changes, f"--storage-path={tmp_path}"])
        == 0
    )
    assert "stopped: training_iteration 1 >= 1" in capsys.readouterr().out
    (result,) = tmp_path.rglob("result.json")
    assert json.loads(result.read_text())["timesteps_total"] == 32


def test_an_example_for_a_gpu_has_it_where_it_learns(capsys: pytest.CaptureFixture[str]):
    path = ROOT / "examples" / "tuned" / "pong-impala-gpu.yaml"
    job = load_job(path)
    assert job.spec.head.gpu is not None
    assert job.spec.config["num_gpus"] == job.spec.head.gpu.count == 1
    assert main(["validate", str(path)]) == 0
    said = capsys.readouterr().out
    assert "On Kubernetes: 15 rollout workers in 3 pods" in said


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["get", "ppo-cartpole"], "ppo-cartpole: is no example. Did you mean cartpole-ppo"),
        (["run", "Cartpole-PPO"], "Cartpole-PPO: is no example. Did you mean cartpole-ppo"),
        (["get", "../cartpole-ppo"], "Did you mean cartpole-ppo"),
        (["get", "x"], "x: is no example. `reef example list` shows all."),
        (["list", "--filter", "atari"], "--filter atari: no example has this text."),
    ],
)
def test_what_is_no_example_is_refused_with_what_is_near(
    command: list[str], said: str, capsys: pytest.CaptureFixture[str]
):
    assert main(["example", *command]) == 2
    assert said in capsys.readouterr().err


def test_an_installed_package_has_its_examples_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(catalog.reef, "__file__", str(tmp_path / "reef/__init__.py"))
    assert main(["example", "get", "cartpole-ppo"]) == 2
    assert f"{tmp_path / 'reef/tuned'}: the examples are missing. Install Reef again." in capsys.readouterr().err
    shutil.copytree(ROOT / "examples/tuned", tmp_path / "reef/tuned")
    assert main(["example", "get", "cartpole-ppo"]) == 0
    assert reef.__file__.startswith(str(tmp_path))
