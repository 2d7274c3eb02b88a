"""Ray Tune in Python programs: `run` and `Tuner`, which know Reef's algorithms by name and class."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.registry import TRAINABLE_CLASS, _global_registry

from reef.algorithms.registry import ALGORITHMS, algorithm_class
from reef.config import AlgorithmConfig
from reef.config.settings import Settings
from reef.distributed.node_settings import QUIET
from reef.distributed.start import start
from reef.errors import ConfigError
from reef.run.algorithm import Algorithm
from reef.run.folders import DEFAULT_FOLDER
from reef.tune.trainable import AlgorithmTrainable


class Analysis(tune.ExperimentAnalysis):
    """The trials of `run`, and the checkpoints that were written."""

    def get_trial_checkpoints_paths(self, trial: Any, metric: str | None = None) -> list[tuple[str, Any]]:
        """Paths of a trial's checkpoints, each with the value of a result field, by default the iteration."""
        found = self._get_trial_checkpoints_with_metric(trial, metric)
        return [(checkpoint.path, value) for checkpoint, value in found]


def trainable(algorithm: Any) -> Any:
    """An algorithm, by its name, class or "package.module:Class", as a trainable of Ray Tune.

    What is none, such as a function or another name that was registered with Tune, is returned as it is.

    Raises:
        ConfigError: neither Reef nor Tune knows this name.
    """
    if isinstance(algorithm, str):
        known = {name.upper() for name in ALGORITHMS}
        registry: Any = _global_registry
        if algorithm.upper() not in known and registry.contains(TRAINABLE_CLASS, algorithm):
            return algorithm
        algorithm = algorithm_class(algorithm)
    if not (isinstance(algorithm, type) and issubclass(algorithm, Algorithm)):
        return algorithm
    settings = algorithm.config_class
    name = algorithm.__name__ if ":" in settings.algorithm else settings.algorithm
    return type(name, (AlgorithmTrainable,), {"algorithm": algorithm, "__doc__": algorithm.__doc__})


def search_space(config: Settings | Mapping[str, Any] | None) -> dict[str, Any]:
    """The settings that a configuration changes, by key; values may be searches such as `tune.grid_search([...])`."""
    if not isinstance(config, Settings):
        if config is not None and not isinstance(config, Mapping):
            raise ConfigError(f"config={config!r}: expected an AlgorithmConfig, or a dict of its settings.")
        return dict(config or {})
    return {
        key: search_space(value) if isinstance(value, Settings) else value for key, value in config.changed().items()
    }


def run(
    run_or_experiment: Any,
    *,
    config: AlgorithmConfig | Mapping[str, Any] | None = None,
    storage_path: str | Path | None = None,
    local_dir: str | Path | None = None,
    checkpoint_config: tune.CheckpointConfig | None = None,
    checkpoint_freq: int = 0,
    checkpoint_at_end: bool = False,
    keep_checkpoints_num: int | None = None,
    checkpoint_score_attr: str | None = None,
    **options: Any,
) -> Analysis:
    """Run trials with Ray Tune, as `ray.tune.run`: of an algorithm of Reef, or what else Tune can run.

    `config`: the settings of the algorithm, with searches in place of values. Results go to `storage_path`, by default
    ~/reef_results; `local_dir` is its older name. The settings say what a trial reserves, not `resources_per_trial`.

    Raises:
        ConfigError: the settings of a trial, or these arguments, are wrong.
    """
    if local_dir is not None:
        if storage_path is not None:
            raise ConfigError(f"local_dir={local_dir!r}: an older name of storage_path, which is given too. Drop one.")
        warnings.warn("local_dir is now called storage_path.", FutureWarning, stacklevel=2)
        storage_path = local_dir
    given: dict[str, Any] = {
        "checkpoint_frequency": checkpoint_freq,
        "checkpoint_at_end": checkpoint_at_end,
        "num_to_keep": keep_checkpoints_num,
        "checkpoint_score_attribute": checkpoint_score_attr and checkpoint_score_attr.removeprefix("min-"),
        "checkpoint_score_order": "min" if (checkpoint_score_attr or "").startswith("min-") else None,
    }
    given = {key: value for key, value in given.items() if value}
    if checkpoint_config and given:
        raise ConfigError(f"checkpoint_config is given, and beside it {', '.join(given)}. Put them into it.")
    of_tune, space = trainable(run_or_experiment), search_space(config)
    _prepare()
    analysis = tune.run(
        of_tune,
        config=space,
        storage_path=_place(storage_path),
        checkpoint_config=checkpoint_config or tune.CheckpointConfig(**given),
        **options,
    )
    metric, mode = options.get("metric"), options.get("mode")
    return Analysis(analysis.experiment_path, trials=analysis.trials, default_metric=metric, default_mode=mode)


class Tuner(tune.Tuner):
    """Ray's `Tuner`, also of an algorithm of Reef; results go to ~/reef_results unless `run_config` says otherwise."""

    def __init__(
        self,
        trainable: Any = None,
        *,
        param_space: AlgorithmConfig | Mapping[str, Any] | None = None,
        run_config: tune.RunConfig | None = None,
        **options: Any,
    ) -> None:
        """`param_space`: the settings of the algorithm, with searches in place of values."""
        of_tune, space = as_trainable(trainable), search_space(param_space)
        run_config = run_config or tune.RunConfig()
        if run_config.storage_path == tune.RunConfig().storage_path:  # Ray's own folder, where none was given
            run_config = dataclasses.replace(run_config, storage_path=_place(None))
        _prepare()
        super().__init__(of_tune, param_space=space, run_config=run_config, **options)

    @classmethod
    def restore(cls, path: str, trainable: Any, **options: Any) -> tune.Tuner:  # type: ignore[override]
        """Go on with the trials in a folder, which holds pickles: only with one that you wrote yourself."""
        if "param_space" in options:
            options["param_space"] = search_space(options["param_space"])
        _prepare()
        restored: tune.Tuner = super().restore(path, as_trainable(trainable), **options)
        return restored


as_trainable = trainable  # where an argument has that name


def _place(storage_path: str | Path | None) -> str:
    """Where results go, as Tune takes it: a path without ~, or an address."""
    return os.path.expanduser(DEFAULT_FOLDER if storage_path is None else str(storage_path))


def _prepare() -> None:
    """Start a Ray of this machine, as `start` does, unless one runs already or RAY_ADDRESS names a cluster."""
    if os.environ.get("RAY_ADDRESS", "local") == "local":
        start()
    for key, value in QUIET.items():  # what a cluster's Ray sends home, and GPUs of actors that ask for none
        os.environ.setdefault(key, value)
