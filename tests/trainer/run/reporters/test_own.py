"""Reporters that the settings name: reef.run.reporters.own, and reef.run.reporters.wandb."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from reef import PPOConfig, load_policies
from reef.cli.main import main
from reef.config.groups.logger import LOGGERS
from reef.errors import CallbackError, ConfigError, TrainingError
from reef.run.build import reporting, run_experiment
from reef.run.reporters.own import BY_NAME, Guarded, own_reporters
from reef.run.reporters.reporter import Reporter

HERE = "tests.trainer.run.reporters.test_own"
SMALL = {"env": "CartPole-v1", "train_batch_size": 16, "sgd_minibatch_size": 16, "num_sgd_iter": 1}
ONE = {"training_iteration": 1}


class Log(Reporter):
    """Writes what it is called with into a file."""

    def __init__(self, path: str, fails: bool = False) -> None:
        self.path, self.fails = Path(path), fails

    def write(self, line: str) -> None:
        with self.path.open("a") as stream:
            stream.write(f"{line}\n")

    def start(self, run: Any) -> None:
        self.write(f"start {run.algorithm}")

    def report(self, result: Any) -> None:
        if self.fails:
            raise KeyError("disk")
        self.write(f"report {result['training_iteration']}")

    def finish(self, summary: Any) -> None:
        self.write(f"finish {summary and summary.reason}")


def test_a_reporter_of_your_own_gets_the_arguments_and_the_results(tmp_path: Path) -> None:
    log = tmp_path / "log"
    config = PPOConfig.from_dict({**SMALL, "logger_creator": f"{HERE}:Log", "logger_config": {"path": str(log)}})
    summary = run_experiment(config, stop={"training_iteration": 2}, storage_path=tmp_path, reporters=[])
    assert log.read_text().splitlines() == ["start PPO", "report 1", "report 2", f"finish {summary.reason}"]
    assert json.loads((summary.folder / "params.json").read_text())["logger_creator"] == f"{HERE}:Log"


def test_what_it_raises_ends_the_run_with_its_line(tmp_path: Path) -> None:
    given = {"path": str(tmp_path / "log"), "fails": True}
    config = PPOConfig.from_dict({**SMALL, "logger_creator": Log, "logger_config": given})
    with pytest.raises(CallbackError, match="logger_creator: report raised KeyError: 'disk'"):
        run_experiment(config, stop=ONE, storage_path=tmp_path, reporters=[])
    assert [path.name for path in tmp_path.glob("*/*/checkpoint_*")] == ["checkpoint_000001"]  # nothing is lost


class Shown(Reporter):
    """One of those that show a run; it may fail."""

    def __init__(self, fails: bool = False) -> None:
        self.fails, self.finished = fails, False

    def report(self, result: Any) -> None:
        if self.fails:
            raise TrainingError("the loss is NaN")

    def finish(self, summary: Any) -> None:
        self.finished = True


class FailsAtTheEnd(Shown):
    """Cannot take how the run ended."""

    def finish(self, summary: Any) -> None:
        raise OSError("no connection")


def test_what_finish_raises_does_not_hide_how_the_run_ended(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = PPOConfig.from_dict({**SMALL, "logger_creator": FailsAtTheEnd})
    shown = Shown()
    assert run_experiment(config, stop=ONE, storage_path=tmp_path, reporters=[shown]).exit_code == 0
    assert shown.finished
    assert "logger_creator: finish raised OSError: no connection" in caplog.text
    with pytest.raises(TrainingError, match="the loss is NaN"):
        run_experiment(config, stop=ONE, storage_path=tmp_path, reporters=[Shown(fails=True)])
    own = reporting(config.checked(), None, [shown], verbosity=0)[-1]
    assert isinstance(own, Guarded)  # after those that show the run


@pytest.mark.parametrize(
    ("creator", "arguments", "message"),
    [
        (f"{HERE}:SMALL", {}, "expected a class derived from reef.run.reporters.reporter.Reporter"),
        (dict, {}, "made {}: expected an object of a class derived from"),
        ("wandbs", {}, "expected the form 'package.module:Name'"),
    ],
)
def test_what_is_no_reporter_is_refused(creator: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        own_reporters(creator, arguments)
    assert own_reporters(None, {}) == []
    with pytest.raises(CallbackError, match="logger_creator raised TypeError: .*unexpected keyword argument 'colour'"):
        own_reporters(Log, {"colour": 1})


def test_settings_and_reporters_agree_about_names() -> None:
    for name in LOGGERS:
        PPOConfig.from_dict({**SMALL, "logger_creator": name}).validate()
    assert tuple(BY_NAME) == LOGGERS


def test_a_checkpoint_goes_without_the_logger_of_its_run(tmp_path: Path) -> None:
    class Here(Shown):
        """No path leads to it."""

    config = PPOConfig.from_dict({**SMALL, "logger_creator": Here, "logger_config": {"fails": False}})
    summary = run_experiment(config, stop=ONE, storage_path=tmp_path, reporters=[])
    assert set(load_policies(summary.checkpoint)) == {"default_policy"}


def test_without_a_result_folder_one_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with PPOConfig.from_dict({**SMALL, "logger_creator": Log}).build():
        assert "logger_creator has no effect here" in caplog.text


class NoAccess(Exception):  # noqa: N818
    """What the library raises."""


class StandIn(ModuleType):
    """What is used of the library of Weights & Biases."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.begun: list[dict[str, Any]] = []
        self.logged: list[tuple[int, dict[str, Any]]] = []
        self.ended: list[int] = []
        self.keys: list[str | None] = []
        self.errors = SimpleNamespace(Error=NoAccess)
        self.failing: set[str] = set()  # names of what raises

    def Settings(self, **options: Any) -> dict[str, Any]:  # noqa: N802 (as the library calls it)
        return options

    def fail(self, name: str) -> None:
        if name in self.failing:
            raise NoAccess(f"{name} does not go")

    def login(self, *, verify: bool) -> bool:
        self.fail("login")
        return not verify

    def init(self, *, project: Any = None, name: Any = None, id: Any = None, dir: Any = None, resume: Any = None,
             config: Any = None, reinit: Any = None, settings: Any = None, tags: Any = None,
             group: Any = None, mode: Any = None) -> StandIn:  # fmt: skip
        self.begun.append(locals())
        self.fail("init")
        self.keys.append(os.environ.get("WANDB_API_KEY"))
        return self

    def log(self, values: dict[str, Any], step: int) -> None:
        self.fail("log")
        self.logged.append((step, values))

    def finish(self, exit_code: int) -> None:
        self.fail("finish")
        self.ended.append(exit_code)


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    found = StandIn()
    monkeypatch.setitem(sys.modules, "wandb", found)
    monkeypatch.setenv("WANDB_API_KEY", "of the environment")
    return found


def train(tmp_path: Path, *flags: str) -> int:
    given = {"train_batch_size": 16, "sgd_minibatch_size": 16, "num_sgd_iter": 1}
    settings = ["--config", json.dumps(given), "--stop", json.dumps(ONE), "--storage-path", str(tmp_path)]
    return main(["train", "--algo", "PPO", "--env", "CartPole-v1", *settings, *flags])


def test_flags_log_to_weights_and_biases(wandb: StandIn, tmp_path: Path) -> None:
    assert train(tmp_path, "--wandb-key", "k3y-of-mine", "--wandb-project", "poles", "--wandb-run-name", "first") == 0
    (begun,) = wandb.begun
    (params,) = tmp_path.glob("*/*/params.json")
    assert (begun["project"], begun["name"], begun["id"], begun["dir"]) == (
        "poles", "first", params.parent.name, str(params.parent),
    )  # fmt: skip
    assert begun["config"]["train_batch_size"] == 16
    ((step, values),) = wandb.logged
    assert (step, values["training_iteration"], wandb.ended, wandb.keys) == (16, 1, [0], ["k3y-of-mine"])
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert len(files) > 5
    assert not [file for file in files if b"k3y-of-mine" in file.read_bytes()]


def test_one_flag_is_enough_and_the_key_is_that_of_the_environment(wandb: StandIn, tmp_path: Path) -> None:
    assert train(tmp_path, "--wandb-project", "poles") == 0
    assert (wandb.keys, wandb.begun[0]["project"]) == (["of the environment"], "poles")
    assert wandb.begun[0]["name"] == wandb.begun[0]["id"]


def test_a_document_logs_there_too(wandb: StandIn, tmp_path: Path) -> None:
    settings = {**SMALL, "logger_creator": "wandb", "logger_config": {"tags": ["a"]}}
    run_experiment(PPOConfig.from_dict(settings), stop=ONE, storage_path=tmp_path, reporters=[])
    assert (wandb.begun[0]["tags"], wandb.begun[0]["project"]) == (["a"], "reef")


def test_without_a_key_nothing_begins(wandb: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb.failing = {"login"}
    config = PPOConfig.from_dict({**SMALL, "logger_creator": "wandb"})
    with pytest.raises(ConfigError, match="logger_creator='wandb': login does not go. Set WANDB_API_KEY, or"):
        run_experiment(config, stop=ONE, storage_path=tmp_path, reporters=[])
    assert not list(tmp_path.glob("*/*/result.json"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert run_experiment(config, stop=ONE, storage_path=tmp_path, reporters=[]).exit_code == 0


@pytest.mark.parametrize(("failing", "tries"), [({"init"}, 1), ({"log", "finish"}, 1)])
def test_what_does_not_get_there_costs_no_training(
    wandb: StandIn, tmp_path: Path, caplog: pytest.LogCaptureFixture, failing: set[str], tries: int
) -> None:
    wandb.failing = failing
    config = PPOConfig.from_dict({**SMALL, "logger_creator": "wandb"})
    summary = run_experiment(config, stop={"training_iteration": 3}, storage_path=tmp_path, reporters=[])
    assert (summary.exit_code, len(wandb.begun), wandb.logged) == (0, tries, [])
    assert caplog.text.count("Weights & Biases did not take results, and training goes on: ") == 1


def test_what_does_not_fit_is_said(wandb: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="'projekt' is no argument of wandb.init. Did you mean 'project'?"):
        own_reporters("wandb", {"projekt": "x"})
    given = json.dumps({"logger_creator": f"{HERE}:Log", "logger_config": {"path": "x"}})
    assert train(tmp_path, "--config", given, "--wandb-project", "x") == 2
    assert "--wandb-... asks for another one" in capsys.readouterr().err


def document(tmp_path: Path, **spec: Any) -> str:
    """The path of a job document, which has no spec where none is given."""
    made: dict[str, Any] = {"apiVersion": "reef.dev/v1", "kind": "RLTrainingJob", "metadata": {"name": "a"}}
    if spec:
        made["spec"] = {"algorithm": "PPO", "environment": {"name": "CartPole-v1"}, "stop": ONE, **spec}
    (tmp_path / "job.yaml").write_text(json.dumps(made))
    return str(tmp_path / "job.yaml")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, "spec: is missing"),
        ({"config": [1]}, "spec.config"),
        ({"config": {"logger_config": None}}, "logger_config=None: expected mapping."),
    ],
)
def test_flags_leave_what_is_wrong_in_a_document_to_its_check(
    spec: dict[str, Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "file", document(tmp_path, **spec), "--wandb-project", "x"]) == 2
    assert message in capsys.readouterr().err


def test_flags_fill_in_a_logger_that_is_null(wandb: StandIn, tmp_path: Path) -> None:
    small = {"train_batch_size": 16, "sgd_minibatch_size": 16, "num_sgd_iter": 1}
    path = document(tmp_path, config={**small, "logger_creator": None})
    assert main(["train", "file", path, "--wandb-project", "x", "--storage-path", str(tmp_path)]) == 0
    assert wandb.begun[0]["project"] == "x"


def test_without_the_library_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ConfigError, match=r"pip install 'reef\[wandb\]'"):
        own_reporters("wandb", {})


def test_the_library_itself_takes_results_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    settings = {**SMALL, "logger_creator": "wandb"}
    summary = run_experiment(PPOConfig.from_dict(settings), stop=ONE, storage_path=tmp_path, reporters=[])
    (file,) = summary.folder.glob("wandb/offline-run-*/run-*.wandb")
    assert b"num_env_steps_sampled" in file.read_bytes()
