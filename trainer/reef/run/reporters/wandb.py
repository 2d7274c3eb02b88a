"""Results on Weights & Biases, by its own library: pip install 'reef[wandb]'."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

from reef.errors import ConfigError, nearest, sentence
from reef.run.metrics import Result
from reef.run.reporters.reporter import Reporter, Run, Summary, numbers_in

log = logging.getLogger(__name__)
SENDS_NOTHING = ("offline", "disabled", "dryrun")  # modes that need no key


class WandbReporter(Reporter):
    """Logs every number of a result at its environment step, to one run of Weights & Biases.

    A run that is resumed goes on there too, as its id is the name of the run's folder; trials are a group. The library
    reads the key from WANDB_API_KEY, or from what `wandb login` stored; WANDB_MODE=offline sends nothing. What does not
    get there costs results, with one warning, not the training.
    """

    def __init__(self, **options: Any) -> None:
        """`options`: arguments of `wandb.init`, such as project and name; ConfigError without the library."""
        try:
            wandb: Any = import_module("wandb")
        except ImportError as error:
            raise ConfigError("logger_creator='wandb': pip install 'reef[wandb]' brings what it needs.") from error
        known = inspect.signature(wandb.init).parameters
        if unknown := [key for key in options if key not in known]:
            raise ConfigError(
                f"logger_config: {unknown[0]!r} is no argument of wandb.init.{nearest(unknown[0], known)} It takes "
                f"{', '.join(known)}."
            )
        self._library = wandb
        self._options = options
        self._run: Any = None
        self._has_failed = False

    def start(self, run: Run) -> None:
        """Look for a key, which is needed unless nothing is sent; ConfigError without one."""
        super().start(run)
        if (self._options.get("mode") or os.environ.get("WANDB_MODE")) in SENDS_NOTHING:
            return
        try:
            self._library.login(verify=False)
        except self._library.errors.Error as error:
            raise ConfigError(
                f"logger_creator='wandb': {sentence(error)} Set WANDB_API_KEY, or WANDB_MODE=offline to send nothing."
            ) from error

    def report(self, result: Result) -> None:
        """Send a result, the first time with the settings."""
        if self._run is None:
            if self._has_failed:  # each try waits for a minute and more
                return
            self._run = self._try(self._begin)
        if self._run is not None:
            self._try(lambda: self._run.log(dict(numbers_in(result)), step=result["timesteps_total"]))

    def finish(self, summary: Summary | None) -> None:
        """End the run, with its exit code."""
        if self._run is not None:
            self._try(lambda: self._run.finish(exit_code=1 if summary is None else summary.exit_code))

    def _try(self, call: Callable[[], Any]) -> Any:
        """What `call` returns; None where it fails, which the first warning says."""
        try:
            return call()
        except Exception as error:  # the library documents no limit to what it raises
            if not self._has_failed:
                log.warning("Weights & Biases did not take results, and training goes on: %s", sentence(error))
            self._has_failed = True
            return None

    def _begin(self) -> Any:
        folder = self.run.folder
        folder.mkdir(parents=True, exist_ok=True)
        usual = {"project": "reef", "name": folder.name, "id": self.run.full_name, "group": self.run.sweep}
        usual |= {"dir": str(folder), "resume": "allow"}
        # Several trials of a sweep report from one process; console: Reef writes to it.
        own = {"reinit": "create_new", "settings": self._library.Settings(console="off")}
        return self._library.init(**{**usual, **own, "config": self.run.config, **self._options})
