"""The reporter that the settings `logger_creator` and `logger_config` name."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from reef.callbacks.hooks import guarded
from reef.config.loading import load_callable
from reef.errors import ConfigError, ReefError
from reef.run.metrics import Result
from reef.run.reporters.reporter import Reporter, Run, Summary

log = logging.getLogger(__name__)
KEY = "logger_creator"
BY_NAME = {
    "mlflow": "reef.run.reporters.mlflow:MlflowReporter",
    "wandb": "reef.run.reporters.wandb:WandbReporter",
}


def own_reporters(creator: Any, arguments: Mapping[str, Any]) -> list[Reporter]:
    """What `creator`, a name, a path, a class or a function, makes of the arguments; nothing for None.

    Raises ConfigError for what is no reporter, or cannot be called so.
    """
    if creator is None:
        return []
    given = BY_NAME.get(creator, creator) if isinstance(creator, str) else creator
    found = load_callable(given, KEY, f"a class derived from {_NAME}")
    made = guarded(KEY, found, **arguments)
    if not isinstance(made, Reporter):
        raise ConfigError(f"{KEY}={creator!r} made {made!r}: expected an object of a class derived from {_NAME}.")
    return [Guarded(made)]


_NAME = f"{Reporter.__module__}.{Reporter.__qualname__}"


class Guarded(Reporter):
    """Calls a person's reporter; what it raises before the end is a CallbackError that says so."""

    def __init__(self, reporter: Reporter) -> None:
        self.reporter = reporter

    def start(self, run: Run) -> None:
        """Before the first iteration."""
        guarded(f"{KEY}: start", self.reporter.start, run)

    def report(self, result: Result) -> None:
        """After each iteration."""
        guarded(f"{KEY}: report", self.reporter.report, result)

    def finish(self, summary: Summary | None) -> None:
        """At the end. What it raises is a warning, as how the run ended is known by now."""
        try:
            guarded(f"{KEY}: finish", self.reporter.finish, summary)
        except ReefError as error:
            log.warning("%s", error)
