"""Results on Weights & Biases, by its own library: pip install 'reef[wandb]'."""

from __future__ import annotations

import inspect
import math
from importlib import import_module
from typing import Any

from reef.errors import ConfigError, nearest
from reef.run.metrics import Result
from reef.run.reporters.reporter import Reporter, Summary, flatten


class WandbReporter(Reporter):
    """Logs every number of a result at its environment step, to one run of Weights & Biases.

    A run that is resumed goes on there too, as its id is the name of the run's folder. The library reads the key from
    WANDB_API_KEY, or from what `wandb login` stored; WANDB_MODE=offline sends nothing.
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

    def report(self, result: Result) -> None:
        """Send a result, the first time with the settings."""
        if self._run is None:
            self._run = self._begin()
        values = {
            name: value
            for name, value in flatten(result)
            if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        }
        self._run.log(values, step=result["timesteps_total"])

    def finish(self, summary: Summary | None) -> None:
        """End the run, with its exit code."""
        if self._run is not None:
            self._run.finish(exit_code=1 if summary is None else summary.exit_code)

    def _begin(self) -> Any:
        folder = self.run.folder
        folder.mkdir(parents=True, exist_ok=True)
        usual = {"project": "reef", "name": folder.name, "id": folder.name, "dir": str(folder), "resume": "allow"}
        # Several trials of a sweep report from one process; console: Reef writes to it.
        own = {"reinit": "create_new", "settings": self._library.Settings(console="off")}
        return self._library.init(**{**usual, **own, "config": self.run.config, **self._options})
