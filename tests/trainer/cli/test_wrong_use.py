"""Wrong use through the command line: one clear message, exit code 2, and nothing half-written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import reef
from reef.cli.main import main

SMALL = {"train_batch_size": 64, "sgd_minibatch_size": 64, "num_sgd_iter": 1}


class Fine(gym.Env[Any, Any]):
    """Five steps an episode; `late` is true from the third episode on, when the check at the start is over."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, context: dict[str, Any] | None = None) -> None:
        self.episode = 0

    @property
    def late(self) -> bool:
        return self.episode > 3

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.steps = 0
        self.episode += 1
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return np.zeros(2, np.float32), 1.0, self.steps == 5, False, {}


class LateStep(Fine):
    def step(self, action: Any) -> Any:
        if self.late:
            raise KeyError("simulator lost")
        return super().step(action)


class LateReset(Fine):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if self.late:
            raise KeyError("level lost")
        return super().reset()


class Init(Fine):
    def __init__(self, context: Any) -> None:
        raise RuntimeError("no licence")


class ThreeValues(Fine):
    def step(self, action: Any) -> Any:
        return super().step(action)[:3] if self.late else super().step(action)


class OtherShape(Fine):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset()
        return np.zeros(3 if self.late else 2, np.float32), {}


class NanLater(Fine):
    def step(self, action: Any) -> Any:
        return (np.full(2, np.nan if self.late else 0.0, np.float32), *super().step(action)[1:])


class Exits(Fine):
    def step(self, action: Any) -> Any:
        if self.late:
            sys.exit(0)
        return super().step(action)


class Nothing:
    def __init__(self, context: Any) -> None: ...


@pytest.fixture(autouse=True)
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environments above, importable as `broken`."""
    module = ModuleType("broken")
    vars(module).update({kind.__name__: kind for kind in (Fine, *Fine.__subclasses__(), Nothing)})
    monkeypatch.setitem(sys.modules, "broken", module)


def job(tmp_path: Path, name: str = "broken:Fine", **spec: Any) -> str:
    """Write a job document and return its path."""
    base: dict[str, Any] = {"algorithm": "PPO", "environment": {"name": name}, "stop": {"training_iteration": 1}}
    document = {"apiVersion": "reef.dev/v1", "kind": "RLTrainingJob", "metadata": {"name": "job"}}
    path = tmp_path / "job.json"  # JSON is YAML
    path.write_text(json.dumps(document | {"spec": base | {"config": SMALL} | spec}))
    return str(path)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ("LateStep", "raised in step() at column 0 of worker 0, step 1 of its episode: KeyError: 'simulator lost'"),
        ("LateStep", 'raise KeyError("simulator lost")'),  # the line of its own traceback
        ("LateReset", "raised in reset() at column 0 of worker 0"),
        ("Init", 'raise RuntimeError("no licence")'),
        ("ThreeValues", "step() returns (obs, reward, terminated, truncated, info)"),
        ("OtherShape", "breaks the Gymnasium API in reset()"),
        ("NanLater", "returned observations with nan at index"),
        ("Exits", "sys.exit(0) was called"),
        ("Nothing", "which has no reset() and no step(). Give a gymnasium.Env"),
    ],
)
def test_a_broken_environment_is_named_with_its_own_words(
    environment: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", job(tmp_path, f"broken:{environment}"), "--storage-path", str(tmp_path / "results")]) == 2
    error = capsys.readouterr().err
    assert expected in error
    assert error.startswith("reef run: ")
    assert str(Path(reef.__file__).parent) not in error  # none of our own lines among the traceback
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"num_gpus": 1}, ("num_gpus=1", "asks for a GPU")),
        (
            {"num_gpus_per_learner_worker": 0.5, "num_learner_workers": 2},
            ("2 x num_gpus_per_learner_worker 0.5 = 1 GPUs, the cluster has 0",),
        ),
        (
            {"num_rollout_workers": 999},
            ("num_rollout_workers 999 x num_cpus_per_worker 1 = 999 CPUs, the cluster has",),
        ),
    ],
)
def test_what_this_machine_has_not_is_refused_at_once(
    config: dict[str, Any], expected: tuple[str, ...], tmp_path: Path
) -> None:
    path = job(tmp_path, "CartPole-v1", config=SMALL | config)
    command = [sys.executable, "-m", "reef", "run", path, "--storage-path", str(tmp_path / "results")]
    without_gpus = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    refused = subprocess.run(command, env=without_gpus, capture_output=True, text=True, timeout=120, check=False)
    assert refused.returncode == 2, refused.stderr
    (line,) = (line for line in refused.stderr.splitlines() if line.startswith("reef run: "))
    assert all(part in line for part in expected), refused.stderr
    assert not (tmp_path / "results").exists()


def test_a_checkpoint_of_another_environment_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", job(tmp_path, "broken:Fine"), "--storage-path", str(tmp_path / "first")]) == 0
    capsys.readouterr()
    (checkpoint,) = (tmp_path / "first").glob("*/*/checkpoint_000001")
    path = job(tmp_path, "CartPole-v1", restoreFrom=str(checkpoint))
    assert main(["run", path, "--storage-path", str(tmp_path / "second")]) == 2
    assert main(["evaluate", str(checkpoint), "--env", "CartPole-v1"]) == 2
    assert capsys.readouterr().err.count("the checkpoint does not fit") == 2
    assert not (tmp_path / "second").exists()


def test_a_loss_that_is_not_finite_is_named_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = job(tmp_path, "broken:Fine", config=SMALL | {"lr": 1e38, "num_sgd_iter": 9})
    assert main(["run", path, "--storage-path", str(tmp_path / "results")]) == 2
    assert "loss nan" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("storage", "expected"),
    [
        ("ftp://bucket/results", "storage 'ftp://bucket/results': expected an object store"),
        ("file", "Not a directory"),
        ("file/below", "Not a directory"),
        ("/proc/results", "/proc/results"),
        (".", "job: Not a directory"),  # a file where this job's folder belongs
    ],
)
def test_a_storage_path_that_cannot_be_written_starts_nothing(
    storage: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = job(tmp_path, "broken:Exits")
    monkeypatch.chdir(tmp_path)
    for name in ("file", "job"):
        (tmp_path / name).write_text("")
    assert main(["run", path, "--storage-path", storage]) == 2
    captured = capsys.readouterr()
    assert expected in captured.err
    assert captured.out == ""
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "job", "job.json"]


def test_no_stop_conditions_are_refused_in_plain_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", job(tmp_path, "broken:Fine", stop={})]) == 2
    assert "spec.stop: is {}, expected at least 1 in it" in capsys.readouterr().err


def test_a_port_that_cannot_be_one_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--metrics-port", "99999", "--storage-path", str(tmp_path / "results")]
    assert main(["run", job(tmp_path, "broken:Fine"), *flags]) == 2
    assert "Give another --metrics-port" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("text", ["def f(:\n", "nowhere\n", "from os import nothing\n"])
@pytest.mark.parametrize(
    ("what", "spec"),
    [
        ("environment", {"environment": {"name": "fails_on_import:Env"}}),
        ("environment", {"environment": {"name": "fails_on_import.Env"}}),
        ("algorithm", {"algorithm": "fails_on_import:Own"}),
        ("model.custom_model", {"config": {"model": {"custom_model": "fails_on_import:Net"}}}),
        ("exploration_config.type", {"config": {"exploration_config": {"type": "fails_on_import:Own"}}}),
    ],
)
def test_a_module_that_fails_on_import_is_named_with_its_line(
    what: str,
    spec: dict[str, Any],
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    module = tmp_path / "fails_on_import.py"
    module.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    path = job(tmp_path, **spec)
    assert main(["run", path, "--storage-path", str(tmp_path / "results")]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"reef run: {what} 'fails_on_import:")
    assert f"{module}, line 1: " in error
    assert main(["validate", path]) == 2
