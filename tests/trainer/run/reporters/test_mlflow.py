"""Results on MLflow, by its own library in a database of the test: reef.run.reporters.mlflow."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from reef import PPOConfig
from reef.errors import ConfigError
from reef.run.build import run_experiment
from reef.run.reporters.own import own_reporters

SMALL = {
    "env": "CartPole-v1",
    "train_batch_size": 16,
    "sgd_minibatch_size": 16,
    "num_sgd_iter": 1,
    "model": {"fcnet_hiddens": [4]},
}


def train(tmp_path: Path, iterations: int, place: str, **options: Any) -> Any:
    given = {"logger_creator": "mlflow", "logger_config": {"tracking_uri": place}}
    stop = {"training_iteration": iterations}
    config = PPOConfig.from_dict({**SMALL, **given})
    return run_experiment(config, stop=stop, storage_path=tmp_path / "runs", reporters=[], **options)


def test_a_run_and_its_resumption_are_one_run_there(tmp_path: Path) -> None:
    client = pytest.importorskip("mlflow").MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/mlflow.db")
    summary = train(tmp_path, 1, f"sqlite:///{tmp_path}/mlflow.db")
    train(tmp_path, 2, f"sqlite:///{tmp_path}/mlflow.db", resume=True)
    experiment = client.get_experiment_by_name("reef")
    (found,) = client.search_runs([experiment.experiment_id])
    assert (found.info.run_name, found.info.status) == (summary.folder.name, "FINISHED")
    assert found.data.params["model.fcnet_hiddens"] == "[4]"
    history = client.get_metric_history(found.info.run_id, "training_iteration")
    assert [(metric.step, metric.value) for metric in history] == [(16, 1.0), (32, 2.0)]
    assert found.data.metrics["info/learner/default_policy/learner_stats/entropy"] > 0


def test_a_server_that_is_not_there_is_said_at_the_start_and_one_that_is_lost_costs_no_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(ConfigError, match="logger_creator='mlflow', tracking_uri='http://127.*start the server"):
        train(tmp_path, 1, "http://127.0.0.1:9")
    assert not list(tmp_path.rglob("result.json"))
    train(tmp_path, 1, f"sqlite:///{tmp_path}/mlflow.db")
    assert train(tmp_path, 2, "http://127.0.0.1:9", resume=True).exit_code == 0  # a run that goes on does without
    assert "MLflow did not take a result: " in caplog.text
    caplog.clear()

    def lost(*args: Any, **kwargs: Any) -> None:
        raise mlflow.exceptions.MlflowException("the server is gone")

    reporter = own_reporters("mlflow", {"tracking_uri": f"sqlite:///{tmp_path}/mlflow.db"})[0].reporter  # type: ignore[attr-defined]
    with caplog.at_level(logging.WARNING):
        reporter._try(lost)
    assert "MLflow did not take a result: the server is gone." in caplog.text


def test_without_the_library_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ConfigError, match=r"pip install 'reef\[mlflow\]'"):
        own_reporters("mlflow", {})
