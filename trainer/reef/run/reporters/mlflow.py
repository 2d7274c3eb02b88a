"""Results on an MLflow server or in its database, by its own library: pip install 'reef[mlflow]'."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from reef.errors import ConfigError, redacted, sentence
from reef.run.metrics import Result
from reef.run.reporters.reporter import Reporter, Run, Summary, numbers_in, single_settings

log = logging.getLogger(__name__)
PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}  # or minutes for each result
TAG = "reef.run"  # of a run there: the full name of the run, by which a resumed run finds it
MOST_NUMBERS, MOST_SETTINGS, MOST_TEXT = 1000, 100, 6000  # what a server takes at once; the last one: characters


class MlflowReporter(Reporter):
    """Logs every number of a result at its environment step, to one run of MLflow; settings are its parameters.

    A run that is resumed goes on there too. A server that is lost later costs its results, not the training. The
    library reads a server's user and password, or token, from its own variables, such as MLFLOW_TRACKING_TOKEN.
    """

    def __init__(
        self, tracking_uri: str | None = None, experiment_name: str = "reef", run_name: str | None = None
    ) -> None:
        """`tracking_uri`: by default MLFLOW_TRACKING_URI; `run_name`: that of the folder, of a trial with its sweep.

        Raises ConfigError without the library.
        """
        try:
            self._library: Any = import_module("mlflow")
            self._entities: Any = import_module("mlflow.entities")
        except ImportError as error:
            raise ConfigError("logger_creator='mlflow': pip install 'reef[mlflow]' brings what it needs.") from error
        for variable, value in PATIENCE.items():
            os.environ.setdefault(variable, value)
        self._place, self._experiment, self._name = tracking_uri, experiment_name, run_name
        self._client: Any = None
        self._run_id = ""

    def start(self, run: Run) -> None:
        """Look for the server; ConfigError where it does not answer, unless the run is one that goes on."""
        super().start(run)
        try:
            self._client = self._library.MlflowClient(tracking_uri=self._place)
            self._client.get_experiment_by_name(self._experiment)
        except self._faults as error:
            text = f"logger_creator='mlflow', tracking_uri={self._place!r}: {sentence(error)}"
            if not run.restored_iteration:
                raise ConfigError(f"{text} Correct the address, or start the server.") from error
            log.warning("%s", redacted(text))

    @property
    def _faults(self) -> tuple[type[Exception], ...]:
        return self._library.exceptions.MlflowException, OSError

    def report(self, result: Result) -> None:
        """Send a result, the first time with the settings."""
        self._try(lambda: self._send(result))

    def _send(self, result: Result) -> None:
        self._run_id = self._run_id or self._begin()
        step, moment = result["timesteps_total"], round(time.time() * 1000)
        metrics = [self._entities.Metric(name, float(value), moment, step) for name, value in numbers_in(result)]
        for part in _parts(metrics, MOST_NUMBERS):
            self._client.log_batch(self._run_id, metrics=part)

    def finish(self, summary: Summary | None) -> None:
        """End the run there: finished, or failed."""
        if self._run_id:
            failed = summary is None or summary.exit_code
            self._try(lambda: self._client.set_terminated(self._run_id, "FAILED" if failed else "FINISHED"))

    def _try(self, call: Callable[[], Any]) -> None:
        try:
            call()
        except self._faults as error:
            log.warning("MLflow did not take a result: %s", sentence(error))

    def _begin(self) -> str:
        """The id of the run there, which a resumed run has already."""
        client, name = self._client, self.run.full_name
        experiment = client.get_experiment_by_name(self._experiment)
        experiment_id = experiment.experiment_id if experiment else client.create_experiment(self._experiment)
        known = client.search_runs([experiment_id], f"tags.`{TAG}` = '{name}'", max_results=1)
        if known:
            run_id: str = known[0].info.run_id
            client.update_run(run_id, status="RUNNING")
            return run_id
        created = client.create_run(experiment_id, run_name=self._name or name, tags={TAG: name})
        params = [
            self._entities.Param(name, str(value)[:MOST_TEXT]) for name, value in single_settings(self.run.config)
        ]
        for part in _parts(params, MOST_SETTINGS):
            client.log_batch(created.info.run_id, params=part)
        return str(created.info.run_id)


def _parts(items: list[Any], size: int) -> Iterator[list[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
