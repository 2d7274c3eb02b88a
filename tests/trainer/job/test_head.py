"""What the head does in its own process, without Ray."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reef.api import JobSpec, load_job
from reef.api.pods import RuntimeEnv
from reef.api.status import TrialsStatus
from reef.errors import ConfigError
from reef.job.head import Pod, has_begun, linger, sweep, take_runtime_env, train
from reef.job.progress import HeadState
from reef.run.signals import StopSignals, Terminated


@pytest.fixture
def own_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables and import path are as before after the test."""
    monkeypatch.setattr(os, "environ", os.environ.copy())
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.mark.usefixtures("own_process")
def test_the_head_finds_code_as_its_workers_do(tmp_path: Path) -> None:
    package = tmp_path / "packages" / "own_module"
    package.mkdir(parents=True)
    take_runtime_env(RuntimeEnv(env_vars={"A": "1"}, working_dir=str(tmp_path), py_modules=[str(package)]))
    assert os.environ["A"] == "1"
    assert sys.path[:2] == [str(tmp_path), str(package.parent)]


def test_a_folder_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match=r"spec.runtimeEnv.py_modules\[0\]: '/none' is no folder of the head pod"):
        take_runtime_env(RuntimeEnv(py_modules=["/none"]))


@pytest.mark.parametrize(
    ("code", "begun", "terminated", "lingers"),
    [
        *((code, True, False, True) for code in (0, 2, 7)),
        *((code, True, False, False) for code in (1, 143)),
        (2, False, False, False),
        (0, True, True, False),
    ],
)
def test_a_head_lingers_after_an_end_that_is_final_when_there_is_something_to_see(
    monkeypatch: pytest.MonkeyPatch, code: int, begun: bool, terminated: bool, lingers: bool
) -> None:
    slept: list[float] = []
    signals = StopSignals()
    signals.terminated = terminated
    monkeypatch.setattr("time.sleep", slept.append)
    monkeypatch.setenv("REEF_LINGER_SECONDS", "30")
    head_state = HeadState()
    head_state.final_codes = (0, 2, 7)
    if begun:
        head_state.swept(None, TrialsStatus(total=1))
    linger(code, head_state, signals)
    assert slept == ([30.0] if lingers else [])


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_job_has_begun_once_there_are_results(tmp_path: Path, scheme: str) -> None:
    place = f"{scheme}{tmp_path / 'storage'}"
    for _ in range(2):
        assert not has_begun(place, "cart-u1"), "a look at the place leaves nothing"
    (tmp_path / "storage" / "cart-u1" / "checkpoint_000001").mkdir(parents=True)
    (tmp_path / "storage" / "cart-u1" / "checkpoint_000001" / "algorithm.json").write_text("{}")
    assert has_begun(place, "cart-u1") and not has_begun(place, "cart-u2")


def environment_of(job_file: Path) -> dict[str, str]:
    return {
        "REEF_JOB_FILE": str(job_file),
        "REEF_STORAGE_PATH": str(job_file.parent),
        "REEF_NAMESPACE": "team",
        "REEF_JOB_NAME": "cart",
        "REEF_JOB_UID": "u1",
        "POD_IP": "127.0.0.1",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": "0" * 64,
    }


def test_before_anything_is_placed_the_head_waits_until_learners_have_room_too(
    monkeypatch: pytest.MonkeyPatch, document: Any, tmp_path: Path
) -> None:
    asked: list[bool] = []

    def lacking_room(config: Any, *, has_learners: bool) -> list[str]:
        asked.append(has_learners)
        return ["no room for 2 of num_learner_workers=2"] if len(asked) == 1 else []

    def run(*arguments: Any, **more: Any) -> None:
        raise Terminated

    job_file = tmp_path / "job.json"
    job_file.write_text(json.dumps(document()))
    for name, value in {"waiting.joined": Counter, "waiting.wait_for_pools": lambda *_: None}.items():
        monkeypatch.setattr(f"reef.job.{name}", value)
    monkeypatch.setattr("reef.distributed.resources.lacking_room", lacking_room)
    monkeypatch.setattr("reef.run.build.run_experiment", run)
    head_state, entered = HeadState(), []
    monkeypatch.setattr(head_state, "enter", lambda *state: entered.append(state))
    local: Any = SimpleNamespace(config=None)
    with pytest.raises(Terminated):
        train(load_job(job_file), local, Pod.of(environment_of(job_file)), head_state, StopSignals())
    assert entered[0] == ("waiting", "training pauses, no room for 2 of num_learner_workers=2")
    assert entered[1] == ("starting", "starting the rollout workers") and asked == [False, False]


@pytest.mark.parametrize("begin", [train, sweep])
def test_a_head_waits_for_the_pods_that_its_document_names_by_now(
    monkeypatch: pytest.MonkeyPatch, document: Any, tmp_path: Path, begin: Callable[..., Any]
) -> None:
    job_file = tmp_path / "job.json"
    job_file.write_text(json.dumps(document(workers=[{"name": "cpu", "replicas": 3}])))

    def wait(read_spec: Callable[[], JobSpec], head_state: HeadState, patience_s: float) -> None:
        assert read_spec().pool_replicas == {"cpu": 3}
        job_file.write_text(json.dumps(document(workers=[{"name": "gpu", "replicas": 1}])))
        assert read_spec().pool_replicas == {"gpu": 1}
        raise Terminated

    monkeypatch.setattr("reef.job.waiting.wait_for_pools", wait)
    job = load_job(job_file)
    with pytest.raises(Terminated):
        begin(job, None, Pod.of(environment_of(job_file)), HeadState(), StopSignals())
